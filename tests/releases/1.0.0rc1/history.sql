BEGIN TRANSACTION;
CREATE TABLE actions (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	document TEXT NOT NULL, 
	stage TEXT NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	campaign TEXT NOT NULL, 
	note TEXT NOT NULL, 
	ordered_by TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "actions" VALUES(1,1.79598709070397639271e+09,'open-ticket','{"campaign":"accept-20261129-211800-0f09","code":"GEMM.CRASH","mode":"propose","node":"n06","reason":"gemm: failed 3 times here, it runs on 10 of 11 nodes: gemm was killed by SIGSEGV (planted)","ticket":"n06/accept-20261129-211800-0f09"}','proposed',1.79598709070397639271e+09,'','','','prod',5523565076390346752);
INSERT INTO "actions" VALUES(2,1.79598709070397639271e+09,'open-ticket','{"campaign":"accept-20261129-211800-0f09","code":"GEMM.TFLOPS","mode":"propose","node":"n09","reason":"matrix products 21% slower than normal on all 2 GPUs (worst cuda:1): 569 instead of 719 TFLOP/s","ticket":"n09/accept-20261129-211800-0f09"}','proposed',1.79598709070397639271e+09,'','','','prod',5506854204750168064);
INSERT INTO "actions" VALUES(3,1.79598709070397639271e+09,'cordon','{"code":"REPAIR","mode":"propose","node":"n03","reason":"its repair is not proven"}','proposed',1.79598709070397639271e+09,'','','','prod',4104775565628669952);
INSERT INTO "actions" VALUES(4,1.79598709070397639271e+09,'notify','{"sentence":"1 of 12 nodes are out, the limit: no more are taken out until an operator closes the breaker; n06 would be next","subject":"fleet"}','done',1.79598709070397639271e+09,'','','the policy, in a turn of admin@vm','prod',5089018762330374144);
INSERT INTO "actions" VALUES(5,1.79598709070397639271e+09,'prove','{"about":"","id":"full  n03@1795987091","mode":"propose","owed":{"n03":[{"about":"","at":1795987090.0256495,"confidence":1.0,"debt":"repair","id":"","mix":{}}]},"proof":"full"}','proposed',1.79598709070397639271e+09,'','','','prod',2309340186334461952);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0035');
CREATE TABLE attributes (
	node TEXT NOT NULL, 
	installed_at DOUBLE, 
	rack TEXT NOT NULL, 
	cage TEXT NOT NULL, 
	sku TEXT NOT NULL, 
	told_by INTEGER NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (node, told_by, cluster)
);
INSERT INTO "attributes" VALUES('n01',NULL,'','','h100',0,'prod',3814551031866458112);
INSERT INTO "attributes" VALUES('n02',NULL,'','','h100',0,'prod',1970690141122985984);
INSERT INTO "attributes" VALUES('n03',NULL,'','','h100',0,'prod',9096839654614761472);
INSERT INTO "attributes" VALUES('n04',NULL,'','','h100',0,'prod',2268356169581985792);
INSERT INTO "attributes" VALUES('n05',NULL,'','','h100',0,'prod',8799447275702059008);
INSERT INTO "attributes" VALUES('n06',NULL,'','','h100',0,'prod',6175745049855262720);
INSERT INTO "attributes" VALUES('n07',NULL,'','','h100',0,'prod',3518327399454343168);
INSERT INTO "attributes" VALUES('n08',NULL,'','','h100',0,'prod',5498028729856688128);
INSERT INTO "attributes" VALUES('n09',NULL,'','','h100',0,'prod',2966701475201286144);
INSERT INTO "attributes" VALUES('n10',NULL,'','','h100',0,'prod',5642369506794799104);
INSERT INTO "attributes" VALUES('n11',NULL,'','','h100',0,'prod',3110441884430893056);
INSERT INTO "attributes" VALUES('n12',NULL,'','','h100',0,'prod',325331884202524672);
CREATE TABLE audit (
	at DOUBLE NOT NULL, 
	who TEXT NOT NULL, 
	address TEXT NOT NULL, 
	method TEXT NOT NULL, 
	path TEXT NOT NULL, 
	status INTEGER NOT NULL, 
	"key" INTEGER NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "audit" VALUES(1.79598709010054659838e+09,'admin@vm','','order','repair-done n03 of prod',0,1);
CREATE TABLE batch_verdicts (
	roster VARCHAR(32) NOT NULL, 
	benchmark TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	judgement TEXT NOT NULL, 
	code TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	alpha DOUBLE, 
	packing VARCHAR(4), 
	similarities BLOB, 
	campaign INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, position), 
	FOREIGN KEY(roster) REFERENCES rosters (digest), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
INSERT INTO "batch_verdicts" VALUES('ce5c32d4f1ac8350b120c8b686d20b4e','gemm','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','tflops','healthy','OK','as the fleet',0.95,'raw',X'3F3D58EBE5EAEF3F5992569312EEEF3F000000000000F03F000000000000F03F9C1DCB9FD9D8EF3F7863F70D7CE7EF3F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F51874CCDFAF8EF3F5F3B4C5B44EFEF3F000000000000F03FAC7611D7EFD5EF3F5770C7B252FDEF3F2ED9D4F6B6D9EF3F',1,0,6328329813070738259);
INSERT INTO "batch_verdicts" VALUES('1136423b99b328d6162a985b68561ce2','gemm','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','agreement','healthy','OK','as the fleet',0.95,'raw',X'000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F',1,1,9137023325080694028);
INSERT INTO "batch_verdicts" VALUES('ee6722e4884f60d6fe6d9a44e22bba6c','pair_torch','{"samples":10,"sizes":"64,1024,65536,8388608"}','bandwidth_gbps','healthy','OK','as the fleet',0.95,'raw',X'44AB6B0ECDF7EF3FAE43ADD174F7EF3F78C849101BEAEF3F25DCE7D64CA6EF3F6DF96F13C0ECEF3FA297715AF9FBEF3FFEAE75790AB9EF3FE31D1040B2E2EF3FD6AFA1437BEBEF3F000000000000F03F42AC55B43AE1EF3F00DF809344DFEF3FEDC0A72C02FBEF3F3251E5A395E1EF3F02E37E2C43FDEF3F354378F79AD0EF3F4FB9DCDDB7EFEF3F44CD18E1A2FBEF3F95A07FB8B4FEEF3F4B74B6A61DCCEF3F2FAD95DC8CFFEF3FA71F54FA52F9EF3F464A498AACCFEF3F34550E7823F2EF3FA0B0E90D17B6EF3F13C3C0DD0DB7EF3F4457E148FFCFEF3FDD3DC82075B2EF3F97B00EB552EDEF3FC41113C18BF2EF3FBCE07A5B7CEAEF3FFF444D2496F0EF3F7FFCD9118BDAEF3FD2CB478EF2E7EF3FA0CCD8EA39D2EF3FD86C3D0F5ED9EF3F',1,2,1367347822411369964);
INSERT INTO "batch_verdicts" VALUES('ee6722e4884f60d6fe6d9a44e22bba6c','pair_torch','{"samples":10,"sizes":"64,1024,65536,8388608"}','latency_us','healthy','OK','as the fleet',0.95,'raw',X'000000000000F03FAD8A69C539F0EF3FB298DDCFCAFEEF3F30CCC08BDDBBEF3F000000000000F03F21D976741EEFEF3F3385A8E1F4BCEF3F23747CBF54FEEF3FCDAAA2A4BDF8EF3FEC5B38459CFEEF3FCDE96A831EEEEF3F9EE6D1A994E6EF3FE0D3299C56EAEF3FB919D3E392F4EF3F7EEF5498D7FEEF3F28C9747DD0C9EF3F34A6D3DA31E6EF3F380B2F7E39FCEF3F87445D0C68F7EF3F1D8BF5D3E2C8EF3F000000000000F03F9B737A3E3EF9EF3F90ECD29B59C1EF3F9124600987F4EF3FC75B823104D2EF3FEF56F9A8E8B4EF3F4263BF4F4AB6EF3FEA39D39D28CFEF3F7D13BE0597DBEF3FB8F3BC7F6CF4EF3F5E5B15B8B0F1EF3FC619052539CAEF3F0D1EE6E946EFEF3F7646E0F63EE0EF3F53CFAB2264FBEF3F21CE17E36FD7EF3F',1,3,6949105207013174112);
INSERT INTO "batch_verdicts" VALUES('ee6722e4884f60d6fe6d9a44e22bba6c','pair_torch','{"samples":10,"sizes":"64,1024,65536,8388608"}','agreement','healthy','OK','as the fleet',0.95,'raw',X'000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F',1,4,1531647130880750018);
CREATE TABLE campaigns (
	id TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	verb TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	executor TEXT NOT NULL, 
	setting TEXT NOT NULL, 
	criteria TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	finished_at DOUBLE, 
	"key" INTEGER NOT NULL, 
	suite TEXT NOT NULL, 
	nodes INTEGER NOT NULL, 
	judgement TEXT, 
	counts TEXT, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (id)
);
INSERT INTO "campaigns" VALUES('accept-20261129-211800-0f09','prod','accept','{"counters":{"counts":[],"is_whole":false,"limits":[],"over_s":null,"stuck":[],"unread":[]},"fabric":null,"left_out":["the fabric between the nodes is not measured: --topology FILE adds it"],"nodes":[{"address":"","gpus":2,"name":"n01","sku":"h100"},{"address":"","gpus":2,"name":"n02","sku":"h100"},{"address":"","gpus":2,"name":"n03","sku":"h100"},{"address":"","gpus":2,"name":"n04","sku":"h100"},{"address":"","gpus":2,"name":"n05","sku":"h100"},{"address":"","gpus":2,"name":"n06","sku":"h100"},{"address":"","gpus":2,"name":"n07","sku":"h100"},{"address":"","gpus":2,"name":"n08","sku":"h100"},{"address":"","gpus":2,"name":"n09","sku":"h100"},{"address":"","gpus":2,"name":"n10","sku":"h100"},{"address":"","gpus":2,"name":"n11","sku":"h100"},{"address":"","gpus":2,"name":"n12","sku":"h100"}],"partners":[],"phases":[{"crosses_fabric":true,"entries":[{"duration_s":5.0,"exclusive":true,"groups":"all","min_nodes":1,"nodes":null,"repeats":3,"rounds":null,"scope":"node","size":null,"timeout_s":60.0,"workload":{"benchmark":"gemm","parameters":"{\"dtypes\":\"auto\",\"gpus\":\"at_once\",\"samples\":4,\"shapes\":\"square\",\"size\":0}","version":"2"}}],"name":"single-node"},{"crosses_fabric":true,"entries":[{"duration_s":20.0,"exclusive":true,"groups":"all","min_nodes":2,"nodes":null,"repeats":2,"rounds":null,"scope":"pair","size":null,"timeout_s":120.0,"workload":{"benchmark":"pair_torch","parameters":"{\"samples\":10,\"sizes\":\"64,1024,65536,8388608\"}","version":"1"}}],"name":"multi-node"}],"specs":[{"duration_s":10.0,"exclusive":true,"launcher":"plain","level":"micro","metrics":[{"ceiling":"the vendor''s dense rate of the format at the sustained clock","direction":"higher","judged_by":"fleet","name":"tflops","summary":"2 m n k operations per product, per number format, and shape unless square","unit":"TFLOP/s"},{"ceiling":"1","direction":"higher","judged_by":"fleet","name":"agreement","summary":"1 when every checked answer is right, else 1 / (1 + wrong answers)","unit":"1"},{"ceiling":"","direction":"lower","judged_by":"limit","name":"gpu_errors_per_min","summary":"how fast a GPU''s counters of errors rose while the program ran, by kind","unit":"1/min"},{"ceiling":"","direction":"lower","judged_by":"limit","name":"gpu_held_back","summary":"share of looks at a busy GPU at which it slowed itself down, by reason","unit":"1"}],"name":"gemm","needs":{"gpu":false,"hca":false,"min_devices":1,"min_nodes":1,"tools":[]},"parameters":[{"default":"at_once","more_is_stronger":false,"name":"gpus","of_pair_test":false,"summary":"\"at_once\": all GPUs of a node at once, as jobs load them; \"in_turn\": one after the other","type":"str"},{"default":"auto","more_is_stronger":true,"name":"dtypes","of_pair_test":false,"summary":"any of fp64, fp32, tf32, fp16, bf16, fp8, int8; \"auto\": all on a GPU, fp64,fp32,bf16 on a CPU","type":"str"},{"default":"square","more_is_stronger":true,"name":"shapes","of_pair_test":false,"summary":"\"square\", MxNxK, BxMxNxK for B such products in one call, \"attention\", a model (bert_large, gpt2_large, llama_7b), or one of its products (\"llama_7b.down\")","type":"str"},{"default":0,"more_is_stronger":false,"name":"size","of_pair_test":false,"summary":"rows and columns of square; 0: 8192 on a GPU (fp64, fp32: 4096), 1024 on a CPU","type":"int"},{"default":30,"more_is_stronger":true,"name":"samples","of_pair_test":false,"summary":"timed batches per product","type":"int"}],"reveals":"throttled clocks, a power cap, broken or miscalculating cores","scope":"node","settings":[],"stresses":"matrix units, registers, caches, power delivery and cooling","summary":"Dense matrix products in several number formats.","version":"2"},{"duration_s":20.0,"exclusive":true,"launcher":"torchrun","level":"micro","metrics":[{"ceiling":"the NIC''s link rate, one way","direction":"higher","judged_by":"fleet","name":"bandwidth_gbps","summary":"by direction (forth: first node to second) and message size","unit":"GB/s"},{"ceiling":"","direction":"lower","judged_by":"fleet","name":"latency_us","summary":"one way, half of a round trip","unit":"us"},{"ceiling":"1","direction":"higher","judged_by":"fleet","name":"agreement","summary":"1 when every checked answer is right, else 1 / (1 + wrong answers)","unit":"1"}],"name":"pair_torch","needs":{"gpu":false,"hca":false,"min_devices":1,"min_nodes":2,"tools":[]},"parameters":[{"default":"64,1024,65536,8388608","more_is_stronger":true,"name":"sizes","of_pair_test":false,"summary":"bytes per message","type":"str"},{"default":10,"more_is_stronger":true,"name":"samples","of_pair_test":false,"summary":"timed batches per size","type":"int"},{"default":0,"more_is_stronger":false,"name":"shift","of_pair_test":true,"summary":"across rails: HCA or GPU i of the first node meets i + shift of the second, counted round","type":"int"},{"default":"","more_is_stronger":false,"name":"rails","of_pair_test":true,"summary":"the rails that a shift counts, by the number or name of their HCAs; \"\": all that are up","type":"str"}],"reveals":"a slow rail, link or direction, a NIC that NCCL does not use, wrong bytes","scope":"pair","settings":[],"stresses":"the path between two nodes as NCCL or gloo use it","summary":"Bandwidth both ways and latency between two nodes (torch send and receive).","version":"1"}],"suite":"small","wiring":[]}','{"alpha":0.95,"alphas":[],"calibrated":true,"confirm":true,"expectations":[{"device":"dcgm-exporter","equals":[],"setting":"service","sku":"*","source":"where a site watches its GPUs is its own affair"}],"false_alarm_rate":0.001,"limits":[{"action":"look for its XID in the kernel log, then restart the node","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"gpus_lost","source":"our choice, a GPU that is in the node and cannot be used is missing","table":"node_health@3"},{"action":"nvidia-smi -e 1, then reset the GPU","at_least":null,"at_most":null,"benchmark":"node_health","equals":1.0,"metric":"ecc_enabled","source":"our choice, without ECC a flipped bit is a wrong number that nobody notices","table":"node_health@3"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"ecc_uncorrectable:volatile","source":"NVIDIA Xid catalog, 48: a reset or restart is needed to clear an uncorrectable error","table":"node_health@3"},{"action":"run the field diagnostic, replace the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"sram_threshold_exceeded","source":"NVIDIA Xid catalog, 48: check the SRAM threshold, follow the RMA flow if exceeded","table":"node_health@3"},{"action":"test its memory bandwidth, plan to replace the GPU","at_least":null,"at_most":10.0,"benchmark":"node_health","equals":null,"metric":"rows_remapped:correctable","source":"the ANUBIS paper (USENIX ATC 2024): above 10, 83 % of such nodes regress","table":"node_health@3"},{"action":"replace the GPU","at_least":null,"at_most":511.0,"benchmark":"node_health","equals":null,"metric":"rows_remapped:uncorrectable","source":"NVIDIA GPU Memory Error Management, row remapping: at most 512 are possible","table":"node_health@3"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"row_remap_pending","source":"NVIDIA GPU Memory Error Management, row remapping: it needs a reset to take effect","table":"node_health@3"},{"action":"replace the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"row_remap_failure","source":"NVIDIA GPU Memory Error Management, RMA policy: a failed remapping","table":"node_health@3"},{"action":"replace the GPU","at_least":null,"at_most":63.0,"benchmark":"node_health","equals":null,"metric":"pages_retired","source":"NVIDIA GPU Memory Error Management, row remapping: older GPUs retire at most 64","table":"node_health@3"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"page_retirement_pending","source":"NVIDIA Dynamic Page Retirement: it needs a reset to take effect","table":"node_health@3"},{"action":"check cooling and power supplies","at_least":null,"at_most":0.5,"benchmark":"node_health","equals":null,"metric":"throttled","source":"our choice: nvml.h says that a change of clocks may show it for a moment","table":"node_health@3"},{"action":"check cooling","at_least":1.0,"at_most":null,"benchmark":"node_health","equals":null,"metric":"thermal_margin_c","source":"NVIDIA NVSentinel, GpuThermalMarginWatch: at the slowdown temperature it is fatal","table":"node_health@3"},{"action":"reseat the card or its riser","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"pcie_lanes_missing","source":"our choice, a link that trained with fewer lanes has lost their share of its rate","table":"node_health@3"},{"action":"reseat the card or its riser","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"pcie_errors:fatal","source":"Linux pcieaer-howto: fatal errors make the link unreliable, it must be reset","table":"node_health@3"},{"action":"reseat the card or its riser","at_least":null,"at_most":8.0,"benchmark":"node_health","equals":null,"metric":"pcie_replays","source":"NVIDIA DCGM, limits of its PCIe health watch: more than 8 replays a minute","table":"node_health@3"},{"action":"reset the GPU, then restart the node","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"nvlinks_inactive","source":"NVIDIA Health Validation, nvlink_active: max_inactive_nvlinks is 0","table":"node_health@3"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"nvlink_errors","source":"Meta GCM, check-dcgmi nvlink: thresholds of 0 for replay, recovery and CRC errors","table":"node_health@3"},{"action":"check the fabric manager","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"fabric_unready","source":"nvml.h, nvmlGpuFabricState_t: only a completed registration can use NVLink","table":"node_health@3"},{"action":"check the fabric manager, the NVLink switches and, in a rack, IMEX","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"fabric_unhealthy","source":"nvml.h, NVML_GPU_FABRIC_HEALTH_MASK: the fabric itself reports bandwidth, routes or settings as wrong","table":"node_health@3"},{"action":"do what recovery_action says","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"recovery_needed","source":"nvml.h, nvmlDeviceGpuRecoveryAction_t: the driver names what has to be done first","table":"node_health@3"},{"action":"check cable, switch port and subnet manager","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"port_down","source":"our choice: a port that is named in the parameter ports is needed","table":"node_health@3"},{"action":"check cable and switch port","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"port_errors_per_s:link_downed","source":"NVIDIA NVSentinel, NIC health monitor: any is fatal, jobs do not survive it","table":"node_health@3"},{"action":"replace the cable","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"port_errors_per_s:local_link_integrity_errors","source":"NVIDIA NVSentinel, NIC health monitor: any is fatal, the link is outside its design","table":"node_health@3"},{"action":"check flow control of the switch port","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"port_errors_per_s:excessive_buffer_overrun_errors","source":"NVIDIA NVSentinel, NIC health monitor: any is fatal, the fabric may lose nothing","table":"node_health@3"},{"action":"look at the job that ran","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"port_errors_per_s:rnr_nak_retry_err","source":"NVIDIA NVSentinel, NIC health monitor: any is fatal, a connection was severed","table":"node_health@3"},{"action":"clean or replace the cable","at_least":null,"at_most":10.0,"benchmark":"node_health","equals":null,"metric":"port_errors_per_s:symbol_error","source":"NVIDIA NVSentinel, NIC health monitor: above 10 per second a link is degraded","table":"node_health@3"},{"action":"GPU stopped processing: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:46","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"double-bit ECC error: reset the GPU, drain the node with 63 or 64","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:48","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"auxiliary power is not connected: check the cables","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:54","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"micro-controller halted: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:62","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"memory could not be remapped: reset the GPU, replace it if the error returns","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:64","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink error: reset the GPU, look at the far end of the link too","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:74","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"GPU has fallen off the bus: restart the node","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:79","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"uncontained memory error: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:95","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"context switch timed out: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:109","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"security fault: undo hardware changes, restart the node cold","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:110","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"GSP did not answer: reset the GPU, power-cycle the node if it returns","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:119","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"GSP error: reset the GPU, power-cycle the node if it returns","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:120","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink could not be trained: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:136","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"ECC error that was not recovered: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:140","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"GPU could not be initialized: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:143","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, SAW error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:144","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, RLW error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:145","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, TLW error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:146","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, TREX error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:147","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, NVLPW_CTRL error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:148","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, NETIR error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:149","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink 5, MSE error: decode it by NVIDIA''s workflow","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:150","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"NVLink taken down by software: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:155","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"a resource was retired: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:156","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"fatal timeout: reset the GPU","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"xids:158","source":"NVIDIA Xid catalog","table":"node_health@3"},{"action":"restart the node","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"sxids:fatal","source":"our choice: the NVSwitch driver itself calls them fatal","table":"node_health@3"},{"action":"look at the processor and memory that it names","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"machine_checks:uncorrected","source":"Intel SDM 3B, IA32_MCi_STATUS: bit 61, the hardware did not correct the error","table":"node_health@3"},{"action":"replace the memory module","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"edac_errors:uncorrectable","source":"Linux RAS guide, EDAC: ue_count counts errors that lost data","table":"node_health@3"},{"action":"mount it","at_least":null,"at_most":0.0,"benchmark":"node_health","equals":null,"metric":"mount_missing","source":"our choice, a mount that is named as expected is needed","table":"node_health@3"},{"action":"free some space","at_least":0.05,"at_most":null,"benchmark":"node_health","equals":null,"metric":"disk_free_share","source":"our choice: ext4 keeps 5 % for root by default, and a full file system ends jobs","table":"node_health@3"},{"action":"remove some files","at_least":0.05,"at_most":null,"benchmark":"node_health","equals":null,"metric":"inodes_free_share","source":"our choice: as for space, small files run out of inodes first","table":"node_health@3"},{"action":"check the time service","at_least":null,"at_most":1000.0,"benchmark":"node_health","equals":null,"metric":"clock_offset_ms","source":"our choice: logs and traces of nodes are compared to the second","table":"node_health@3"},{"action":"do what \"findings\" in its environment says; nothing has to be reseated or replaced","at_least":null,"at_most":0.0,"benchmark":"dcgm_diag","equals":null,"metric":"findings:config","source":"NVIDIA dcgm_errors.h, DCGM_ERROR_CONFIG: an error that is mended by a setting","table":"dcgm_diag@1"},{"action":"run the program again alone; if it is wrong again, look at memory, GPU and driver","at_least":0.75,"at_most":null,"benchmark":"*","equals":null,"metric":"agreement","source":"a single wrong answer makes it 0.5","table":"answers@1"},{"action":"reseat the card or its riser","at_least":null,"at_most":8.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:pcie_replays","source":"NVIDIA DCGM, limits of its PCIe health watch: more than 8 replays a minute","table":"under_load@1"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:ecc_uncorrectable","source":"NVIDIA Xid catalog, 48: a reset or restart is needed to clear an uncorrectable error","table":"under_load@1"},{"action":"run a memory test, reset the GPU, replace it if they return","at_least":null,"at_most":10.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:ecc_correctable","source":"our choice, rays from space cause less than one a day, a failing cell many a minute","table":"under_load@1"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:rows_remapped_correctable","source":"NVIDIA GPU Memory Error Management, row remapping: it needs a reset to take effect","table":"under_load@1"},{"action":"reset the GPU","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:rows_remapped_uncorrectable","source":"NVIDIA GPU Memory Error Management, row remapping: it needs a reset to take effect","table":"under_load@1"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:nvlink_errors_replay","source":"NVIDIA DCGM, limits of its NVLink health watch: a single replay or recovery fails","table":"under_load@1"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:nvlink_errors_recovery","source":"NVIDIA DCGM, limits of its NVLink health watch: a single replay or recovery fails","table":"under_load@1"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":0.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:nvlink_errors_recovery_failed","source":"our choice, a link that could not recover is down","table":"under_load@1"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":6000.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:nvlink_errors_crc_flit","source":"NVIDIA DCGM, limits of its NVLink health watch: CRC errors matter from 100 a second on","table":"under_load@1"},{"action":"reset the GPU, then look at its NVLinks","at_least":null,"at_most":6000.0,"benchmark":"*","equals":null,"metric":"gpu_errors_per_min:nvlink_errors_crc_data","source":"NVIDIA DCGM, limits of its NVLink health watch: CRC errors matter from 100 a second on","table":"under_load@1"},{"action":"check cooling and power supplies","at_least":null,"at_most":0.5,"benchmark":"*","equals":null,"metric":"gpu_held_back","source":"our choice: nvml.h says that a change of clocks may show it for a moment","table":"under_load@1"},{"action":"run sdc_screen again for an hour; if it is seen again, swap the GPU with another node''s","at_least":null,"at_most":0.0,"benchmark":"sdc_screen","equals":null,"metric":"seen_once","source":"our choice: a sound GPU gives the same bits for the same numbers, every time","table":"sdc_screen@1"}],"min_units":3,"own_alpha":false,"remedies":[{"action":"look for throttling (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE), correct power cap or cooling; if all GPUs are slow, compare driver and settings with a healthy node; else reset the GPU, measure again, and replace it if it is slow again","codes":["GEMM.*","CONVOLUTION.*","SHARDED_MATMUL.*","OVERLAP.*","GPU_BURN.*","TRAIN_*","INFER_TRANSFORMER.*"],"evidence":"nvidia-bug-report.log.gz, dcgmi diag -r 3, the serial number of the GPU, this report"},{"action":"look at remapped rows and ECC errors (nvidia-smi -q -d ROW_REMAPPER,ECC), reset the GPU, measure again","codes":["MEMORY_BANDWIDTH.*","SDC_SCREEN.*"],"evidence":"nvidia-bug-report.log.gz, dcgmi diag -r 3, the serial number of the GPU, this report"},{"action":"if all GPUs are slow, compare BIOS, IOMMU and power profile with a healthy node; if some are, compare their PCIe link with its best (lspci -vv, LnkSta against LnkCap), and reseat the GPU or its riser","codes":["HOST_DEVICE_COPY.*","NVBANDWIDTH.*"],"evidence":"lspci -vv, nvidia-bug-report.log.gz"},{"action":"look at NVLinks and the fabric manager (nvidia-smi nvlink -s, nvidia-smi topo -m), then restart the node","codes":["PEER_COPY.*","INTRANODE_COLLECTIVE.*","NCCL_TESTS.*"],"evidence":"nvidia-bug-report.log.gz, nvidia-smi nvlink -e"},{"action":"look at the NIC''s PCIe link, firmware and port counters (mlxlink, perfquery), then clean or replace its cable","codes":["IB_LOOPBACK.*","PAIR_*","COLLECTIVE.*","INCAST.*"],"evidence":"mstdump or mlxlink --amber_collect, the serial numbers of NIC and cable"},{"action":"look at the drive''s health and temperature (nvme smart-log), free space, trim it, then replace it","codes":["DISK_IO.*"],"evidence":"nvme smart-log, the serial number of the drive"},{"action":"compare BIOS settings, power profile and kernel options with a healthy node, and look for other load","codes":["KERNEL_LAUNCH.*","CPU_MEMORY_LATENCY.*"],"evidence":""},{"action":"compare with a healthy node; what is missing is reseated first, then replaced","codes":["NODE_HEALTH.*"],"evidence":"nvidia-bug-report.log.gz, the node''s hardware inventory"},{"action":"set it as on the nodes beside it (or those as on this one), and run node_config again; what may differ on your site, or is to be what it is, goes into a file of expectations","codes":["NODE_CONFIG.*"],"evidence":"the settings of this node and of one beside it (anubis bench run node_config)"},{"action":"say which value is right in a file of expectations, or that the nodes were upgraded (anubis tell fleet-upgraded)","codes":["NO-MAJORITY"],"evidence":""},{"action":"nothing; settings are compared where three nodes of a sku tell them and the policy does not let them differ","codes":["NO-PEERS","NOT-JUDGED"],"evidence":""},{"action":"look why node_config cannot read on this node what it reads on others","codes":["UNREAD"],"evidence":""},{"action":"read the diagnosis (dcgmi diag -r 3 -j), then follow NVIDIA''s flow for the test that failed","codes":["DCGM_DIAG.*"],"evidence":"the JSON of dcgmi diag -r 3, nvidia-bug-report.log.gz"},{"action":"take the node out now, it computes wrong results; run the field diagnostic and replace the part","codes":["*.AGREEMENT","*.LOSS"],"evidence":"this report, the output of the field diagnostic"},{"action":"read the kernel log for XID, MCE and out-of-memory lines of that time, then restart the node","codes":["*.CRASH"],"evidence":"nvidia-bug-report.log.gz, the kernel log"},{"action":"look for stuck processes and XIDs (ps, dmesg), restart the node, measure again","codes":["*.HANG"],"evidence":"nvidia-bug-report.log.gz, the kernel log"},{"action":"clean or replace the cable or its transceivers, at both ends, then scan again","codes":["NETWORK.LINK","NETWORK.UPLINKS"],"evidence":"mlxlink --amber_collect of both ports, the serial numbers of cable and transceivers"},{"action":"clean or replace the cable, then the NIC; look at its PCIe link first","codes":["NETWORK.NIC"],"evidence":"mstdump or mlxlink --amber_collect, the serial number of the NIC"},{"action":"look at the switch''s log, temperature, firmware and port counters; drain the nodes below before a restart","codes":["NETWORK.SWITCH"],"evidence":"the switch''s technical support dump"},{"action":"all rails of the node are slow, so look at the node before its cables (PCIe settings, NUMA, firmware)","codes":["NETWORK.NODE"],"evidence":""},{"action":"scan with --topology, which tells cables, leaves and switches apart","codes":["NETWORK.PATH"],"evidence":""},{"action":"move the cables to the ports that are named, or correct the topology","codes":["WIRING.EXCHANGED","WIRING.WRONG-LEAF"],"evidence":""},{"action":"look for the NIC on the PCIe bus, then at port and cable","codes":["WIRING.MISSING"],"evidence":""},{"action":"clean or replace the cable, which came up slower or narrower than its sisters","codes":["WIRING.SLOW"],"evidence":""},{"action":"look whether the node is up (BMC, console), then test it again","codes":["NODE-LOST"],"evidence":""},{"action":"test again; do not use it as if it were healthy","codes":["NOT-MEASURED","TIMED-OUT","NOT-FINISHED","FAILED-ONCE","UNSTABLE","UNEXPLAINED","NO-GOOD-PAIR","NOT-REPEATED"],"evidence":""},{"action":"restore a backup of the history, or test again; do not use it as if it were healthy","codes":["DAMAGED"],"evidence":""},{"action":"learn criteria first (accept, or learn)","codes":["NO-CRITERION"],"evidence":""},{"action":"the reason says what learning lacked; more repeats or a quieter machine help most","codes":["CRITERION-REFUSED"],"evidence":""},{"action":"compare with more nodes of this sku, or judge by criteria that more nodes taught (--criteria)","codes":["TOO-FEW-NODES"],"evidence":""},{"action":"look what other jobs sent at that time; scan again when it is quiet","codes":["CAME-AND-WENT"],"evidence":""},{"action":"look for what only so many nodes reach, such as limits of a library or of a switch; no node is at fault","codes":["GROUP-SIZE"],"evidence":""},{"action":"scan again with more pairs (--cover, --full), or exchange one of the parts","codes":["CANNOT-TELL-APART"],"evidence":""},{"action":"scan with pairs that avoid it, or compare with criteria of a good day","codes":["NO-CONTRAST"],"evidence":""},{"action":"correct the topology, in which this node or device is missing","codes":["NOT-MAPPED","NOT-PLACED"],"evidence":""}],"retries":1,"selection":{"above_p0":"unknown","category_prior":2.0,"half_life_h":168.0,"horizon_h":24.0,"p0":0.1,"prior":0.05,"search":"optimum","silence_d":30.0},"stop_early":false,"tail":0.05}','simulated','{"by":"admin@vm","cluster":{"executor":"simulated","fleet":{"crash_share":0.05,"devices":2,"fast_by":0.07,"fast_share":0.0,"faults":[],"hang_share":0.0,"loaded_share":0.0,"lost_share":0.08,"nodes":"n[01-12]","noise":0.005,"samples":4,"seed":5,"sku":"h100","skus":{},"slow_by":0.2,"slow_share":0.1,"spread":0.005},"keeping":"","name":"","parallel_nodes":null,"site":"","topology":""},"folders":["/opt/anubis/benchmarks"]}','[{"criteria":[{"alpha":0.95,"direction":"higher","doubt_alpha":null,"from_repeats":false,"healthy":20,"key":{"device_kind":"cuda","metric":"agreement","sku":"h100","workload":{"benchmark":"gemm","parameters":"{\"dtypes\":\"auto\",\"gpus\":\"at_once\",\"samples\":4,\"shapes\":\"square\",\"size\":0}","version":"2"}},"nodes":10,"proposed_alpha":0.999,"reference":[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0],"refusal":"","repeatability":1.0,"repeats":1,"shows":0.05,"siblings_alpha":null,"slow_steps":{"both":7.5e-05,"least":0.025000000000000022,"lost":0.0,"once":0.008660254037844387,"scatter":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"shares":[{"correlation":0.0,"share":0.0,"steps":240,"times":1.1},{"correlation":0.0,"share":0.0,"steps":240,"times":1.5},{"correlation":0.0,"share":0.0,"steps":240,"times":3.0}],"usual":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0]},"stalls":0.167,"tail":1.0,"typical_alpha":null,"unit":"1","units":20},{"alpha":0.95,"direction":"higher","doubt_alpha":null,"from_repeats":false,"healthy":18,"key":{"device_kind":"cuda","metric":"tflops","sku":"h100","workload":{"benchmark":"gemm","parameters":"{\"dtypes\":\"auto\",\"gpus\":\"at_once\",\"samples\":4,\"shapes\":\"square\",\"size\":0}","version":"2"}},"nodes":10,"proposed_alpha":0.9650401272728865,"reference":[711.8583541941098,715.3161805020401,715.9532575448995,716.4047085119106,717.4853999313684,719.1324816340145,719.7956071747421,720.8315793900747,721.2265250985039,722.0285881442421,722.3394012067432,725.275185861607],"refusal":"","repeatability":0.9929248776691019,"repeats":1,"shows":0.062,"siblings_alpha":null,"slow_steps":{"both":7.5e-05,"least":0.025000000000000022,"lost":0.0,"once":0.008660254037844387,"scatter":[0.01918,0.02094,0.01918,0.01918,0.01918,0.02526,0.01919,0.02217,0.01918,0.02094,0.0198,0.01918],"shares":[{"correlation":0.0,"share":0.0,"steps":240,"times":1.1},{"correlation":0.0,"share":0.0,"steps":240,"times":1.5},{"correlation":0.0,"share":0.0,"steps":240,"times":3.0}],"usual":[0.00739,0.00587,0.00416,0.00338,0.00292,0.00462,0.00554,0.00517,0.00428,0.00379,0.00597,0.0037]},"stalls":0.167,"tail":1.0,"typical_alpha":null,"unit":"TFLOP/s","units":20},{"alpha":0.95,"direction":"higher","doubt_alpha":null,"from_repeats":false,"healthy":9,"key":{"device_kind":"cuda","metric":"agreement","sku":"h100","workload":{"benchmark":"pair_torch","parameters":"{\"samples\":10,\"sizes\":\"64,1024,65536,8388608\"}","version":"1"}},"nodes":9,"proposed_alpha":0.999,"reference":[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0],"refusal":"","repeatability":1.0,"repeats":1,"shows":0.05,"siblings_alpha":null,"slow_steps":{"both":9.999999999999999e-05,"least":0.025000000000000022,"lost":0.0,"once":0.01,"scatter":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"shares":[{"correlation":0.0,"share":0.0,"steps":72,"times":1.1},{"correlation":0.0,"share":0.0,"steps":72,"times":1.5},{"correlation":0.0,"share":0.0,"steps":72,"times":3.0}],"usual":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0]},"stalls":0.375,"tail":1.0,"typical_alpha":null,"unit":"1","units":9},{"alpha":0.95,"direction":"higher","doubt_alpha":null,"from_repeats":false,"healthy":9,"key":{"device_kind":"cuda","metric":"bandwidth_gbps","sku":"h100","workload":{"benchmark":"pair_torch","parameters":"{\"samples\":10,\"sizes\":\"64,1024,65536,8388608\"}","version":"1"}},"nodes":9,"proposed_alpha":0.9839597790933252,"reference":[45.80056726537712,45.851360399071545,46.03677964298587,46.08960998897817,46.09138367820346,46.128555276859856,46.24947615845672,46.42892626342334],"refusal":"","repeatability":0.9966210971793183,"repeats":1,"shows":0.052,"siblings_alpha":null,"slow_steps":{"both":9.999999999999999e-05,"least":0.025000000000000022,"lost":0.0,"once":0.01,"scatter":[0.00967,0.02955,0.00967,0.01684,0.00967,0.01017,0.00967,0.02069],"shares":[{"correlation":0.0,"share":0.0,"steps":72,"times":1.1},{"correlation":0.0,"share":0.0,"steps":72,"times":1.5},{"correlation":0.0,"share":0.0,"steps":72,"times":3.0}],"usual":[0.00086,0.00111,0.00216,0.0083,0.0,0.00027,0.00062,0.00347]},"stalls":0.375,"tail":1.0,"typical_alpha":null,"unit":"GB/s","units":9},{"alpha":0.95,"direction":"lower","doubt_alpha":null,"from_repeats":false,"healthy":9,"key":{"device_kind":"cuda","metric":"latency_us","sku":"h100","workload":{"benchmark":"pair_torch","parameters":"{\"samples\":10,\"sizes\":\"64,1024,65536,8388608\"}","version":"1"}},"nodes":9,"proposed_alpha":0.9843382045445673,"reference":[20.863704433942864,20.894494226137947,20.910930521972755,20.912598660096222,20.980378098559232,21.021772206302277,21.0404928925023,21.068262070307263],"refusal":"","repeatability":0.9968617778514094,"repeats":1,"shows":0.051,"siblings_alpha":null,"slow_steps":{"both":9.999999999999999e-05,"least":0.025000000000000022,"lost":0.0,"once":0.01,"scatter":[0.01567,0.01468,0.01468,0.02215,0.01468,0.03417,0.01512,0.01468],"shares":[{"correlation":0.0,"share":0.0,"steps":72,"times":1.1},{"correlation":0.0,"share":0.0,"steps":72,"times":1.5},{"correlation":0.0,"share":0.0,"steps":72,"times":3.0}],"usual":[0.00045,0.00681,0.00216,0.00241,0.00319,0.00616,0.00455,0.00352]},"stalls":0.375,"tail":1.0,"typical_alpha":null,"unit":"us","units":9}],"node_kind":null,"provenance":{"anubis":"1.0.0rc1","created_at":"2023-11-14T22:20:38+00:00","digest":"c1ce1f1c30e706b2","suite":"small","versions":{}},"sku":"h100"}]',1.79598708082612013815e+09,1.7959870853039383888e+09,1,'small',12,'defective','{"batch_verdicts":5,"demands":2,"executions":114,"failed":2982732737,"measured":1684180140,"node_verdicts":12,"part_verdicts":0,"paths":0,"verdicts":4}',4575570784229294714);
CREATE TABLE clocks (
	kept TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (cluster)
);
INSERT INTO "clocks" VALUES('{"ahead_s":0.0,"doubted":null,"guarded":null,"older":1795987090.0256495,"since":1795987090.7039762,"trusted":{"at":1795987101.659049,"boot":"5ca874aa-7c19-4874-8b87-b581c3866df0","steady_s":38956.395051154}}','prod',6311392589647970304);
CREATE TABLE clusters (
	name TEXT NOT NULL, 
	executor TEXT NOT NULL, 
	address TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "clusters" VALUES('prod','simulated','',1.79598708084676909448e+09);
CREATE TABLE decisions (
	document TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	"key" INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	event TEXT NOT NULL, 
	action TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "decisions" VALUES('{"action":"skip","assumed":["no model of risk is trained, so every node has the fleet''s base rate, one incident in 45 days"],"at":1795987109.276044,"because":"by the policy","category":"","cluster":"prod","coverage":0.0,"covered_before":0.0,"down":[],"drivers":[{"because":"","node":"n01","p":0.02197649439118596,"share":0.5},{"because":"","node":"n02","p":0.02197649439118596,"share":0.5}],"event":"job-allocated","gaps":[{"finders":["gemm"],"share":0.7321428571428572},{"finders":["node_health"],"share":0.05357142857142859},{"finders":["memory_bandwidth"],"share":0.05357142857142859},{"finders":["host_device_copy"],"share":0.05357142857142859},{"finders":["train_transformer"],"share":0.05357142857142859}],"greedy_node_seconds":0,"horizon_s":86400.0,"longest_s":0.0,"missed":0.0434700224766461,"node_seconds":0,"nodes":["n01","n02"],"p":0.043470022476646095,"p0":0.1,"partners":[],"remaining":0.043470022476646095,"tests":[]}','prod',1,1.79598710927604389192e+09,'job-allocated','skip',3868321144784289792);
CREATE TABLE demands (
	benchmark TEXT NOT NULL, 
	version TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	stronger_with TEXT NOT NULL, 
	campaign INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, position), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
INSERT INTO "demands" VALUES('gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','["dtypes","shapes","samples"]',1,0,1913918799547990016);
INSERT INTO "demands" VALUES('pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','["sizes","samples"]',1,1,3038032523981488128);
CREATE TABLE diagnoses (
	job TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	level INTEGER NOT NULL, 
	code TEXT NOT NULL, 
	nodes TEXT NOT NULL, 
	headline TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY (job, at, cluster)
);
CREATE TABLE diagnosis_details (
	job TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	lines BLOB NOT NULL, 
	page BLOB NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY (job, at, cluster)
);
CREATE TABLE environments (
	digest VARCHAR(32) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "environments" VALUES('44136fa355b3678a1146ad16f7e8649e','{}');
CREATE TABLE event_records (
	id TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	event TEXT NOT NULL, 
	document TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (id, cluster)
);
INSERT INTO "event_records" VALUES('repair-done-20261129-211810-5698',1.79598709002564954758e+09,'repair-done','{"action":"","nodes":["n03"]}','prod',9185580349034332160);
INSERT INTO "event_records" VALUES('incident-reported-20261129-211816-7541',1.79598709608262276649e+09,'incident-reported','{"category":"ib_link","nodes":["n05"]}','prod',7284289062574227456);
CREATE TABLE executions (
	step TEXT NOT NULL, 
	benchmark TEXT NOT NULL, 
	version TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	participants VARCHAR(32) NOT NULL, 
	phase INTEGER NOT NULL, 
	repeat INTEGER NOT NULL, 
	timeout_s DOUBLE NOT NULL, 
	"exclusive" BOOLEAN NOT NULL, 
	attempt INTEGER NOT NULL, 
	ended TEXT NOT NULL, 
	final BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	lost TEXT NOT NULL, 
	started_at DOUBLE, 
	duration_s DOUBLE NOT NULL, 
	layout VARCHAR(32), 
	packing VARCHAR(4), 
	samples BLOB, 
	environment VARCHAR(32) NOT NULL, 
	not_applicable TEXT NOT NULL, 
	campaign INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, number), 
	CONSTRAINT executions_once UNIQUE (campaign, step, attempt), 
	FOREIGN KEY(participants) REFERENCES participants (digest), 
	FOREIGN KEY(layout) REFERENCES layouts (digest), 
	FOREIGN KEY(environment) REFERENCES environments (digest), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
INSERT INTO "executions" VALUES('0.0.0/gemm/n06','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','16bbd84c565c3df06b5bf0f62b5a89bc',0,0,60.0,1,1,'failed',1,'gemm was killed by SIGSEGV (planted)','[]',1700000000.0,4.58817195892334,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,1,93542957482770432);
INSERT INTO "executions" VALUES('0.0.0/gemm/n11','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b73efceac62330bea938b46e36892ab1',0,0,60.0,1,1,'lost',1,'no longer answers (planted)','["n11"]',1700000000.0,5.44263148307800292968e+00,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,2,8569482413002981376);
INSERT INTO "executions" VALUES('0.0.1/gemm/n11','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b73efceac62330bea938b46e36892ab1',0,1,60.0,1,1,'skipped',1,'no longer answers (planted)','["n11"]',NULL,0.0,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,3,3942319905126219776);
INSERT INTO "executions" VALUES('0.0.2/gemm/n11','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b73efceac62330bea938b46e36892ab1',0,2,60.0,1,1,'skipped',1,'no longer answers (planted)','["n11"]',NULL,0.0,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,4,1265771572740751360);
INSERT INTO "executions" VALUES('0.0.0/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.08610987663269,'7173260835b182d3c80d29d5e15d092c','raw',X'263E820B75838640ED41F1737770864099D01CA92BA48640121C8D7FF39E864054FA95373075864029D4C0E692B886409F23FF3D94968640EE52043CF89A8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,5,1627180689781572132);
INSERT INTO "executions" VALUES('0.0.0/gemm/n04','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','0ada303af52f2aaf99603c379d1514fd',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.37707257270813,'7173260835b182d3c80d29d5e15d092c','raw',X'D88945216AA5864084B9493BEAD086409ED57E92A6E08640FA2FFAA29282864013B84CFF2FC58640FA5E0960A9B78640EE5EB59223C586407CA6CC0914D58640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,6,3911224285762715301);
INSERT INTO "executions" VALUES('0.0.0/gemm/n05','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','58abc3449e2591f5c9e9f5071424bfdd',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.40698003768920898437e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'20D59325C290864044AB54354A8986405E4C99900FAD8640CD8F511A02AA8640A3B7A57D8371864081C39857919D86400D19E858129A864037CC1A91518E8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,7,4670633433756708998);
INSERT INTO "executions" VALUES('0.0.0/gemm/n01','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','5fca2986f903b984f55b54ec6c3b22b9',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.52408623695373535156e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'D9CC7846FA5D8640E4C79D39CF7D864045559E14155A864036C2D63F945D86400E4868630F5486400EFE3DFEE86486408CC97F15F16F8640B0EB7EBAA9A38640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,9,5269040587971359383);
INSERT INTO "executions" VALUES('0.0.0/gemm/n03','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','665911e25d9da672a7ec9cd551aa3de4',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,1.02080724239349365236e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'FC4301DCA54086402FCE4FC4B467864008881E7789848640F79F3618D25C8640D1FAB9AD17638640B0FD96378C548640D247988F656686401455E55F8D6A8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,14,2014327637848638653);
INSERT INTO "executions" VALUES('0.0.0/gemm/n07','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','215797f009f33aede7ac1cbb412710bc',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.46089863777160644531e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'88B2E85A6FD9864004E10F8E5CE58640AEC88DC172BD86405107DA8B08E4864092B7C53BCFB986407DA8F77A94A786404701710A78988640CF33A6ABB6D38640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,8,6666198606560813042);
INSERT INTO "executions" VALUES('0.0.0/gemm/n08','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','8f094418b348834776451353c10d8701',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.7128925323486328125e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'49C9AB1EC4A3864005555F6DFA868640F3DCFD70C947864017452F53322A8640CF7B894F5C56864026EEC068F588864052B4FAB1C15E8640B64F7B9576618640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,10,2865418495201370399);
INSERT INTO "executions" VALUES('0.0.0/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,9.80980086326599121093e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'8CD57D0502BE8140B2A081BFC3C38140D9121A0969D38140FDA7323A02C381409F065A1A0CB981402E187FC9A7B58140044A521F10CA814055F58FFE9DCC8140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,12,839997888260820860);
INSERT INTO "executions" VALUES('0.0.0/gemm/n10','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','83bfff7843159aa8868d835ad2d47425',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,1.01867475509643554685e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'610E64ECCF898640299FA489875A8640AAF55B19E26B8640641FA59433AA86409686190B90708640454EB4595642864065DE1FF5536D8640ABCBBFDC06778640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,13,870790271287238231);
INSERT INTO "executions" VALUES('0.0.1/gemm/n06','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','16bbd84c565c3df06b5bf0f62b5a89bc',0,1,60.0,1,1,'failed',1,'gemm was killed by SIGSEGV (planted)','[]',1.70000000458817195894e+09,5.20604228973388671875e+00,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,11,2827594274827141120);
INSERT INTO "executions" VALUES('0.0.0/gemm/n12','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b0915a2e8ebfedf5553e3dfb41ecbf7f',0,0,60.0,1,1,'measured',1,'','[]',1700000000.0,1.04239919185638427732e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'02C0935B9E5D8640CCD3EEE7315B864066E8CC16646D864024313A45E16586407BF0113D244A8640147A0ED4432E86407C831F2D3B3B86407911A21F71808640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,15,5729456284653110774);
INSERT INTO "executions" VALUES('0.0.2/gemm/n06','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','16bbd84c565c3df06b5bf0f62b5a89bc',0,2,60.0,1,1,'failed',1,'gemm was killed by SIGSEGV (planted)','[]',1.70000001020807242398e+09,5.32564258575439453125e+00,NULL,NULL,NULL,'44136fa355b3678a1146ad16f7e8649e','',1,16,2727413947899576320);
INSERT INTO "executions" VALUES('0.0.1/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,1,60.0,1,1,'measured',1,'','[]',1700000009.40698,1.00338709354400634765e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'09D5B6EBDC8786405A22B5E5AB70864003FB408A64A78640574EA98A35908640C50716C8E1798640F7A03CFA19BA86406BF199216C6C8640F0E50E5809928640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,20,4028907332018995341);
INSERT INTO "executions" VALUES('0.0.1/gemm/n04','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','0ada303af52f2aaf99603c379d1514fd',0,1,60.0,1,1,'measured',1,'','[]',1700000009.40698,9.92142057418823242187e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'97F263D9D4B2864053AB5DB7A2A386406855DFF05DC0864069653CB31D828640C008D9DECBC98640029FDC8AF0CB864027AD7BE844A88640B09DD91BD9DC8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,18,5434502056566052301);
INSERT INTO "executions" VALUES('0.0.1/gemm/n05','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','58abc3449e2591f5c9e9f5071424bfdd',0,1,60.0,1,1,'measured',1,'','[]',1700000009.40698,9.85594344139099121093e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'EB42BA5CFD988640629CA5989C62864025280C1A04748640B14E3CDD346B8640EAC6A2BC3D988640010957758B658640169A9A4123828640912DEF3DDFA48640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,17,8877059185923751746);
INSERT INTO "executions" VALUES('0.0.1/gemm/n10','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','83bfff7843159aa8868d835ad2d47425',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,9.14104628562927246093e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'B0C0CDE8DD3E864096C46B8C3A9086407BD9FA17B7928640D85F4B675D7E86408630DC3975438640AC8103D95580864019D24F941563864035239DC59D548640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,19,6490968031067976248);
INSERT INTO "executions" VALUES('0.0.1/gemm/n01','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','5fca2986f903b984f55b54ec6c3b22b9',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,9.96839475631713867187e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'77712F621E6D864048F86CB7C4A0864022FDC5D3A65C864007100D3F44538640356D2EF0616D86405E7BFD63506586404FC86C02794C86405473646DC13D8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,22,2020225108752832286);
INSERT INTO "executions" VALUES('0.0.1/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,9.81453609466552734375e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'769FFFB421AE8140E8F3270D46F18140F31EF0BB9BD781402D85392A3FDE81400195D02E84D78140EF225F26E8B68140E3A8C098DBC7814060ABC6443BE08140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,21,3969448534382230794);
INSERT INTO "executions" VALUES('0.0.1/gemm/n12','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b0915a2e8ebfedf5553e3dfb41ecbf7f',0,1,60.0,1,1,'measured',1,'','[]',1.70000001042399191859e+09,1.00111715793609619136e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'B1C62962FF878640352C1546777786404609A4BAB5968640C1D4718304988640B5408C0A146F86404884072B16728640026DFFD507588640B64C8F8866558640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,23,8768026326773823067);
INSERT INTO "executions" VALUES('0.0.1/gemm/n03','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','665911e25d9da672a7ec9cd551aa3de4',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,1.08837039470672607426e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'2689ABBB6D6B8640A6C733770D5B864009BDDE2FFE2F86406FC436151D5486405BB10524C7718640273F50ACEE6686408290C2EEA87C864050FE8067FBA38640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,25,3424009930606224323);
INSERT INTO "executions" VALUES('0.0.1/gemm/n07','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','215797f009f33aede7ac1cbb412710bc',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,1.09420931339263916015e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'D446C608DCBF86407A7BB9C9258F864061132BBE86988640F4C265451FD586409E3411B7AEE08640817F7B43E3AE8640A9E22E6DFCB18640C506501253BF8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,26,6050201626992827456);
INSERT INTO "executions" VALUES('0.0.1/gemm/n08','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','8f094418b348834776451353c10d8701',0,1,60.0,1,1,'measured',1,'','[]',1.70000001020807242398e+09,1.0343977212905883789e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'2622C31919AA864091A6A252AE5A8640858558CC96768640CB43C25B19918640093A65AC8A6D8640DAB30795377D86408240672B1674864079732AEDFC498640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,24,2304579761973790640);
INSERT INTO "executions" VALUES('0.0.2/gemm/n04','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','0ada303af52f2aaf99603c379d1514fd',0,2,60.0,1,1,'measured',1,'','[]',1.70000001944085097314e+09,9.54101991653442382812e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'AF7608359CE38640E748DE227CB78640624ED1ABEE878640AE5954FF0DBC86408B0C3DFD04BB8640B1629B819CB986407E18523F11A8864079AEEAB737CE8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,27,103859215078751169);
INSERT INTO "executions" VALUES('0.0.2/gemm/n05','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','58abc3449e2591f5c9e9f5071424bfdd',0,2,60.0,1,1,'measured',1,'','[]',1.70000001944085097314e+09,9.64903211593628,'7173260835b182d3c80d29d5e15d092c','raw',X'204501DB019F864067C434D82F63864067F23F9E02738640C267F357987C8640CD813BF5016F8640B823D1965BA486401B42A7CD07888640D2FB7A2735BC8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,28,874697800051964870);
INSERT INTO "executions" VALUES('0.0.2/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,2,60.0,1,1,'measured',1,'','[]',1.70000001944085097314e+09,9.84503912925720214843e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'73658FDFAFB88640F75A8C30ECC18640F0F83B8026938640D8F4AAA77E5C8640A4A1A6A5658F864066A5D87ACEA98640683AB9F5B67F86401A5A1EFA60C28640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,29,7099134083076975255);
INSERT INTO "executions" VALUES('0.0.2/gemm/n12','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','b0915a2e8ebfedf5553e3dfb41ecbf7f',0,2,60.0,1,1,'measured',1,'','[]',1.70000002043516349791e+09,9.5088596343994140625e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'E233F4ADB18B8640A7D68857E63D864087C8910367958640CD92352CCE808640628EEDBB287F86400E399C59F040864001807E5973648640F47B341A8E708640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,30,2916338373867789630);
INSERT INTO "executions" VALUES('0.0.2/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,2,60.0,1,1,'measured',1,'','[]',1.70000002043516349791e+09,1.01491999626159667968e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'2385BD06F9D88140605527CA56D88140721537C1CA0482408FDA6F380FCE81405778035553BB8140E732B9D825E08140EC7C8BB75DE88140B66279A20FD78140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,32,1568882453408670871);
INSERT INTO "executions" VALUES('0.0.2/gemm/n10','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','83bfff7843159aa8868d835ad2d47425',0,2,60.0,1,1,'measured',1,'','[]',1.70000001944085097314e+09,1.09112498760223388673e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'4EEB87520F7986408DF8D0D73C63864012E07D45A05F864030631813A78686405A570E0E565A8640ED157CE8D15A8640EB18700574288640C4EB84F64F478640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,31,3620160147150694942);
INSERT INTO "executions" VALUES('0.0.2/gemm/n01','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','5fca2986f903b984f55b54ec6c3b22b9',0,2,60.0,1,1,'measured',1,'','[]',1.70000002043516349791e+09,1.09960289001464843754e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'37D1D4A3196886400AFB8C6BFF628640F45F940C177F8640B09F77167A678640B5174B7BB963864067925B76BA8A86405BF7F800FF63864073FFA75B58898640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,36,1797105351486807186);
INSERT INTO "executions" VALUES('0.0.2/gemm/n03','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','665911e25d9da672a7ec9cd551aa3de4',0,2,60.0,1,1,'measured',1,'','[]',1.7000000211501655579e+09,9.98927783966064453125e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'5625E2D1A46A8640E85511D3839B864057CE5DF9861E86409AEDA0138D638640CC91A433925B86403F1460BBDD4686408637C5E1533286404E50F421097D8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,34,8541630568111526833);
INSERT INTO "executions" VALUES('0.0.2/gemm/n07','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','215797f009f33aede7ac1cbb412710bc',0,2,60.0,1,1,'measured',1,'','[]',1.7000000211501655579e+09,9.82681798934936523437e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'6B994F13A3F18640BD950B9EC0AA864071DA629188AD86402389589AD57386407960D4FF72BE86408AA4EAF7A4CB86408FEF6D0059B186405E89AD23F3D88640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,33,7846554991742029357);
INSERT INTO "executions" VALUES('0.0.2/gemm/n08','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','8f094418b348834776451353c10d8701',0,2,60.0,1,1,'measured',1,'','[]',1.7000000211501655579e+09,1.00272157192230224607e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'37E15FBAF25686406E0E090A7E988640A44E0C17ED7C864098F6C6E6947786401856DB503F658640324A19B79D7E864021CB8E3D55928640294593F135628640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,35,6131055636035742042);
INSERT INTO "executions" VALUES('0.0.0.1/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,0,60.0,1,1,'measured',1,'','[]',1.70000003143119239809e+09,9.92190599441528320312e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'EB46DBE71F9F8640E74B9F201E9186408FDD1F1FA59C8640F8C40A0F54B98640A8DEDDE8FD80864075A85F7C808286408064711AFD8386405845268CD99A8640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,37,928485758794253578);
INSERT INTO "executions" VALUES('0.0.0.1/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,0,60.0,1,1,'measured',1,'','[]',1.70000003143119239809e+09,1.06938886642456054687e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'D4553C9A5BF08140B53A903D15C781409280992670EF81404DF250BEE2AC81405B82DE7B86B781406877DA9A2DDB8140DF30DAA698C2814067486BAB82C78140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,38,3525119126368067174);
INSERT INTO "executions" VALUES('0.0.1.1/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,1,60.0,1,1,'measured',1,'','[]',1.70000004212508106231e+09,9.01299428939819335937e+00,'7173260835b182d3c80d29d5e15d092c','raw',X'EF9C2DF83E9E8140F57E671FD8CE81408F24EC8260F68140A09CB0B5ACB281400493156285DA81409EA4165865B78140F9A15CF3BEC38140D84136450EC18140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,39,6586590863869319179);
INSERT INTO "executions" VALUES('0.0.1.1/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,1,60.0,1,1,'measured',1,'','[]',1.70000004135309839246e+09,1.09537005424499511718e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'7523BAA6B76C8640A06CE21EE2948640A965A2D2AC758640C632A35CA580864016404BDE6C9C86401D058368697E8640234804E2837086408671949679958640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,40,7646778005369705018);
INSERT INTO "executions" VALUES('0.0.2.1/gemm/n09','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','68d40bf582a306a0591df953ae2c0000',0,2,60.0,1,1,'measured',1,'','[]',1.70000005113807535171e+09,1.06389212608337402343e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'5AD4EA221AB08140A4999839ADDF814003B0120C13BD8140E9353F03DEC481407331B656A3E881409082C467C0CF8140820CA90270E1814011EDE920D3C68140000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,41,8246275950893184821);
INSERT INTO "executions" VALUES('0.0.2.1/gemm/n02','gemm','2','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','78c1f1d1c45a184eed95c9c6b41fca62',0,2,60.0,1,1,'measured',1,'','[]',1.7000000523067989349e+09,1.03670539855957031247e+01,'7173260835b182d3c80d29d5e15d092c','raw',X'9B15F94E24A5864022044772608686406758DC99439886407790517B5F678640387CE61AB6638640C7AE13B96FB0864091C91283FA888640C17A7D1172838640000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,42,8274260713639749752);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n04+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','21fc5a437ef9e9834f20a0643a3481e4',1,0,120.0,1,1,'measured',1,'','[]',1.70000006267385292057e+09,20.3886821269989,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'165E7252E90947400161E66438D04640D6F29FE0DCE846406D3C84F1DCFF464040B2FABF3FFF3440963E501B18003540880CC31172E934408F985D4807103540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,44,5988289213643323087);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n07+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','75a36f5ef0357198847430868b8ed79c',1,0,120.0,1,1,'measured',1,'','[]',1.70000006267385292057e+09,2.08777608871459960946e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'C44DF4F390DA4640CAA50B1FF7334740DA50BA9BF2F246403C2F8E28CDE346404472BBAA46EF3440D072E8355DD3344031DF9B141A043540792BE9A34E023540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,45,8031543237265800104);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n10+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','bea609de1b7d6b72c60a84e9c96b65e6',1,0,120.0,1,1,'measured',1,'','[]',1.70000006267385292057e+09,2.03193800449371337886e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'2759E83CD215474017F745ED7B054740563A6D6CCA1247403F9B42E3F11B474053D2CBA39A1F3540AD70FE489F11354098EBFC264CF034409177E8BE031D3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,43,8159552995952631317);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n02+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','7d4c2352b28e7af7ccdcb023941bc806',1,0,120.0,1,1,'measured',1,'','[]',1.70000006267385292057e+09,2.16431813240051269526e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'0F89D45282BE464048F2A306CFF146406A0EE8265AB346402487F3ACD509474013C400A8553635406E9397795C00354069EF184EEC0B3540141D96BD88253540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,46,7740141495977540348);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n05+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','e9b17990d30f8beddf746ea65f48ea61',1,0,120.0,1,1,'measured',1,'','[]',1.70000008355161380761e+09,1.81361632347106933593e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D7ADDD2346FE4640B00BD241A23F474062717E9E1A284740580FBCE36FF74640D3E93289B6E73440504C9A7AF40735400FA842C234033540E3A4A89F28D13440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,47,4690923604254361634);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n12+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','85660dc3fef7c36344999199a7df2dc8',1,0,120.0,1,1,'measured',1,'','[]',1.70000008431703424453e+09,1.80078139305114746093e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'E77FBFC6F2DC4640B408BD482CE04640046D077CD01C47404132FA64D92947401A5D8AEF960C35409DFE031B5D09354049B2337EA3133540E9D71AC165F73440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,48,88793486705719326);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n03+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','90f2ef52172ce0b5c7fbc94188587eb6',1,0,120.0,1,1,'measured',1,'','[]',1.70000008355161380761e+09,2.06306066513061523446e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'12151AF67CDE46404A2F904FDFCE464090479252A3E44640B832BFEB3212474018DA955360E33440B55FBD2E3D1435402C578C9E8A3735401B57B193E8D03440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,50,5437760431559204534);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n08+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b54100030d90a5774de88ecd33580aa7',1,0,120.0,1,1,'measured',1,'','[]',1.70000008431703424453e+09,1.97568945884704589843e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'8E90A6FFE0CA4640E471FF0091EC46403860197B5DC2464036F11B8132B846400315CB50762935409096615A5D1835408F411583152C3540D1DBB07A70293540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,49,6625941899286931328);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n01+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','d5497ed3bf2b12931892a42254754ea1',1,0,120.0,1,1,'measured',1,'','[]',1.70000010418222045893e+09,2.00315976142883300781e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'850D8A32D33E4740002EE148230D47407B797EF63C25474096594FFD01E44640798F4D1C2B04354063E7BF3156EB3440CAE54A60AD0D35402E3058AC82143540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,51,5740263348441769860);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n04+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','77ad4d13d3bcd991f24805602db94898',1,0,120.0,1,1,'measured',1,'','[]',1.70000010418222045893e+09,2.01784465312957763663e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'82C24201B2DF4640EAE86E3161DB46400C79AE7F0F08474011D76519BDF646400587F881C11135401001445C581235402D134F4CC8213540B3A393CEEB0F3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,52,1488979066502940593);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n07+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','73ce19d4cccd6a72cdd1132008d167e4',1,0,120.0,1,1,'measured',1,'','[]',1.70000010418222045893e+09,2.13346109390258789053e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'7EC1DD412DD14640E2444474C8FF46408A4D2D3E00B8464053B2B77958DC464074F906CFBE2D35401B65304211383540FDFD5DBD251A35404902EB8749153540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,53,3989963703295660683);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n10+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','48170e9c1d41dd465163be82eee54f2f',1,0,120.0,1,1,'measured',1,'','[]',1.70000010418222045893e+09,2.14502305984497070316e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'661DE8D8770A47405FA6DD5A93074740ED2DB6757D16474033F64180A5EF46404F0D626830FA3440698B5264F31A354052A4A095DFE43440AFE5CFAEC3E33440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,54,5950797737933920747);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n12+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f54483564cdc2187eecd0a7abd4b5721',1,0,120.0,1,1,'measured',1,'','[]',1.7000001256324510574e+09,1.8131107330322265625e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'368365485EB84640873812953B1C474035A717C3D9D44640A261632D90F64640EDFF218E9F1C3540429475EA3E263540409CB7F1B00135402C8895FECF203540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,55,3787153207083870683);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n02+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ab8fa2fd517544fddb7f0b1894e0c4e0',1,0,120.0,1,1,'measured',1,'','[]',1.70000012436066699024e+09,2.07659494876861572265e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'5346E495931347403A4AF1CD14EE46407650F813170D474082405B5A26D6464028B9661A6C0035409160340DEAEE3440A961C232E9F23440B8E5C0A9F8233540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,56,2672547843990665439);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n08+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','7bb3cc2d44d1fb6a0295ed7f164cc265',1,0,120.0,1,1,'measured',1,'','[]',1.7000001256324510574e+09,2.02832310199737548823e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'B798DECBEB144740D04F2482ABC84640A6CEE966230047402779A2E36AD54640C4634FE9F41D3540360AA162E8D834409FA47962C31435405898866CDA2C3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,57,2890832287629215765);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n05+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','2ea4379563da2426cea9d7ca6163e7e6',1,0,120.0,1,1,'measured',1,'','[]',1.7000001256324510574e+09,2.07585687637329101566e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'1B1BA365F6F346409C34ACD2E11147407D75EC1B0DF3464005E263E805134740FDDB628F7FF23440B16766065C13354025F5BD6C8DEA34407856172581FD3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,58,4385782481284465543);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n01+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b1e0458a25a3491f8bec9bca78f48f40',1,0,120.0,1,1,'measured',1,'','[]',1.7000001463910198212e+09,1.92891323566436767578e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'4AB80D42D7C04640DD834E02A0D44640C9553A5770CF4640E657906EAEBA464015794A4DD22D35403CAD9326F430354068BDD9B25D27354082AB773CE6363540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,60,5813153760646319496);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n03+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f8c78bf8b7d6b1745f0d8e3524d8467a',1,0,120.0,1,1,'measured',1,'','[]',1.7000001463910198212e+09,1.99937875270843505859e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D2A2DA75B20B474030071257780B47407D85F7FC78E6464007DAB2D5EE1F47404F98480BE2183540B6A2F5715EE63440C111EB3C48063540F0A51BFA8EDF3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,61,3800130198902723923);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n07+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','99e07ea7017ae29145d2c9d2c9008c5c',1,0,120.0,1,1,'measured',1,'','[]',1.70000014512661647798e+09,2.0541145086288452148e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'85FF1C0FBB01474095F5CE501E074740DBAFEB23A526474043964CD64A344740BF235AF319D53440FA5673174AD13440C20CD1C5DCE134407CA8474507DD3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,59,361545308215995829);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n10+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ad6750a378688bdf5bb2a07af732e3e2',1,0,120.0,1,1,'measured',1,'','[]',1.70000014591568207739e+09,2.07474312782287597647e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'E788E37ABA1947406B2C86CA080147400CA5185A2EF646405CA30229550E4740B4863888551A35407FF44C56081835405A788D91A21535405EC906D844243540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,62,3258034680525416207);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n08+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','0eb330ec95598836297fff8120325e70',1,0,120.0,1,1,'measured',1,'','[]',1.70000016638480734828e+09,1.87690894603729248046e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'375359F4A5EE4640EC450308DBEF4640CC56C59314CC46402CFF23DE6EEB46407ACF91A5E51F3540EB93D8760B1D3540B05AF112752835401FE55A6E6FF53440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,63,1260213644800040390);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n02+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','6a5aa2d9a44a0fc74712ffdfd9520cb0',1,0,120.0,1,1,'measured',1,'','[]',1.7000001666631133556e+09,1.94374217987060546875e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'2861BD357CED4640E18C183B70CE4640C7121095141647406673C139022F4740198489FFDBDF344016BD0F89E2113540B5DD1EF4DFEB344062589F06BCEC3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,65,1419688745584460339);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n12+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','6121a2e2bb4b4c1681511ffb131fc091',1,0,120.0,1,1,'measured',1,'','[]',1.7000001666631133556e+09,1.93218121528625488281e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'811A89CB18EE46405228C6115FC4464046BC13DDBDCE4640DE32F452061D47409712DCADE6EE344052CFC77D33003540FD49BE0C0EF834406833688D29163540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,64,5755056697798529249);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n04+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','2b30ebef113eeae948a331318cb3c627',1,0,120.0,1,1,'measured',1,'','[]',1.70000016638480734828e+09,2.13436188697814941414e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'2101A912490E4740B3972BCD93D646409AA02764FB2047400514645EC83647404FE1F427CAFC34409E56804D70FA3440143E691C04EC3440683A90A35DE73440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,66,5913427968411401722);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n01+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','5f295ee604ac0ef3ed56e903852bbc36',1,0,120.0,1,1,'measured',1,'','[]',1.70000018610053515435e+09,19.2396342754364,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'FAA715BAD20A4740BCA1829FE6034740CEA4048524024740FA635255702A4740E9E2B7EC5EE2344038A7EBB0E706354011BB49C37BE934403857988CA0D93440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,69,3535084057648689966);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n03+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ff60c8aa2e3241f4a442c3432cc7cf06',1,0,120.0,1,1,'measured',1,'','[]',1.70000018610053515435e+09,1.90956773757934570312e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'F445BDFEF60D4740C6DFEAD6AE04474095325A85C0F246406B97FA2077BA46408470F7FD9622354072CE3AA757193540993F2317ABF73440FD7D1DD633173540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,68,2189817343257784644);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n05+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9b8be40b055c1072f2c9b336465d2bfa',1,0,120.0,1,1,'measured',1,'','[]',1.7000001851538968086e+09,1.96411242485046386718e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'1A251B8D590E4740C54BAEC601E746405A93996F88DB46403FBE70AACCF5464096F8CCC7111A3540CCDC3A17D72D35403A4A05F5154635408FEAD1F193283540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,67,8676114115305277694);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n10+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','68cdbeb50cb1442823286c363b6aa460',1,0,120.0,1,1,'measured',1,'','[]',1.70000018772842621805e+09,2.17880105972290039062e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'11BB08B5142347403C3D5326EBD64640142BDDFA67F94640621CBD241CFD46402339D80805DD3440913298C6C21435405CEA213DC4EA3440694A9592DB1B3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,70,212247103131882225);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n12+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','39cb9110966ab293b8897c6c015f2577',1,0,120.0,1,1,'measured',1,'','[]',1.70000020534016942977e+09,1.81450896263122558593e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'BAC2377F0F1447408998B5F736EA4640028C217C49E94640C7342EA648B64640E4768408EBFB344044A7BB1E920B354070FBFA230F0435408BFABEF990DC3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,71,8248752450369108145);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n02+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f9dc2d4c9987fda27094b331d2e5a99d',1,0,120.0,1,1,'measured',1,'','[]',1.70000020534016942977e+09,2.08309168815612792973e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'88A1CB8606124740FBD7D3340FFE464068B654174BF8464096FB58926EFB4640987CD710A0E93440CD061F0FFAFA3440E6867F9F791135402BB9D792FDE43440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,72,6723594334256403796);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n04+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9acab08dd5a55c2cc5f0a0485e56e52b',1,0,120.0,1,1,'measured',1,'','[]',1.70000020951643681524e+09,1.92906770706176757812e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'327535FB640F4740B573B227DDF346400042F2F1AC0D47402FFE1FB761FE4640E201F669BBD43440A4BC494806F03440FFF79A6156133540F00F0BF0BAFA3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,73,6679437539175846579);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n07+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','14f3afc08865c164ed8b028004401a90',1,0,120.0,1,1,'measured',1,'','[]',1.70000020951643681524e+09,2.1418939828872680664e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'CC5115DFD8064740B951B19CEB064740793EB1E930FF464098A5B6F0CDEA46401CA263421AF93440969F6D14800035407C72EFD8B6F93440E3756643C0FB3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,74,3542365199622129487);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n05+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','8599d1365fed968cadb804a527d47b1f',1,0,120.0,1,1,'measured',1,'','[]',1.70000022617108631139e+09,1.81334199905395507812e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'8BB82DBF7B5C47405F84229B85EE4640B35C49CC1936474031AA0305FAD54640597F186A43EB34405930CFA5150035409D986F5585053540226155A1B6143540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,75,6195308940009882446);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n08+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b7f05ca4f208f2468af794ac6303d54c',1,0,120.0,1,1,'measured',1,'','[]',1.70000022348525905609e+09,2.12371578216552734383e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'DCE8889AE4DB4640DC7B9BB8930F47408A0B5CA39DBD464094FEC083F3E44640D2B5600638EF3440583822A461253540A852ED1DBD19354061EBD43D90303540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,76,4013443628461801687);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n03+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','c039a6d59c329f36cf9d817594a7d34b',1,0,120.0,1,1,'measured',1,'','[]',1.70000022880711388587e+09,2.12526066303253173832e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'9A8527A7EA01474018C34AB6FEF7464018F4590991094740005D15EABEFE4640650BB882EADB34400294E9358C113540711E4487030F35406CBF19CAA1FC3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,77,903800302614291992);
INSERT INTO "executions" VALUES('1.0.0/pair_torch/n01+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9aa5de5790e8b231fa212ffbeb0b7b8a',1,0,120.0,1,1,'measured',1,'','[]',1.70000023093537664417e+09,2.1084303379058837891e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'81D083FB5FD74640A6CD72369A0347401F824E8F282C4740D4865EDACAE746405723118CDB173540A90333E8D6D9344049FA39373A0A35406D7AF82BA1FD3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,78,1624931417369152241);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n02+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','7d4c2352b28e7af7ccdcb023941bc806',1,1,120.0,1,1,'measured',1,'','[]',1.70000024472241687773e+09,1.90970256328582763671e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'FDAFE88755D3464003D8657663E64640E0AF347D4FFB464029E7705C4198464062A8D20452043540FE430FDF78283540DC4E4425FE223540BDE00513FD5D3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,79,1463782098920739438);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n04+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','21fc5a437ef9e9834f20a0643a3481e4',1,1,120.0,1,1,'measured',1,'','[]',1.70000025005972051615e+09,1.8184782266616821289e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'A9856BA45CF64640D652392087F54640F4C318E520EA464023296C8B4D1E4740167A833700EB34409FA5B4AE55103540D2829B18B8FD3440C1AEB30FDFF43440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,80,5312579790928963893);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n07+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','75a36f5ef0357198847430868b8ed79c',1,1,120.0,1,1,'measured',1,'','[]',1700000252.01968,1.98211331367492675781e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D1455CC16F0F4740FCE46ECB011C47400697C9847B4547409C5A01FC09284740D84BAC20AAEB3440686917EB56FC344019C227DD14FF3440885D841CC4043540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,81,1159551141019081883);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n10+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','bea609de1b7d6b72c60a84e9c96b65e6',1,1,120.0,1,1,'measured',1,'','[]',1700000252.01968,2.091145491600036621e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'0F5354E21BD94640620EAE2260E34640A7EA99789ED946402C4550B38816474022180C54B0003540EECA4E8B68F334404A124E6B50183540A0B6ABE5FC263540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,82,7519500107125497644);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n12+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','85660dc3fef7c36344999199a7df2dc8',1,1,120.0,1,1,'measured',1,'','[]',1.70000026381944251063e+09,2.01148285865783691414e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'1EBEEB9F2DF74640FEE14EAAB0004740AE331DE4C9DE464018A4C53094F04640C18832D89E233540028618DCABF33440C60C7663EE3135402E5099E029EF3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,83,6618556437718665651);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n05+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','e9b17990d30f8beddf746ea65f48ea61',1,1,120.0,1,1,'measured',1,'','[]',1.70000027184081315993e+09,1.85058939456939697265e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'6047CCB06C2847406012C43CEB0C47404C8A2AB2E12747404656D59962E54640CF81C2C25E0E354077CE99C3F60C3540AC17C7467906354071791F30D4E93440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,85,7697340368814099049);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n08+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b54100030d90a5774de88ecd33580aa7',1,1,120.0,1,1,'measured',1,'','[]',1.70000026824450278283e+09,2.19968280792236328116e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'75EFAED5711A4740FF49C708AABD4640E3B29B06A1E646402AD113FEEBC24640F02A8E5359283540849A035AE6173540AFFF67001F3C3540BC49AE6044233540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,84,630363959513486229);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n03+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','90f2ef52172ce0b5c7fbc94188587eb6',1,1,120.0,1,1,'measured',1,'','[]',1.70000027293113493923e+09,2.06975708007812499991e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'BC604DCCC0D04640C86E17C1D83347407CDA16000DE44640E59D37D43D414740578F6A64B1E134404D8EF370FF0D3540284E60F5980A3540726F869CDD003540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,86,2012120256885334218);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n04+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','77ad4d13d3bcd991f24805602db94898',1,1,120.0,1,1,'measured',1,'','[]',1.70000029034670710565e+09,1.80554635524749755859e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'DDC2A68FAECF4640B8F728E59CE24640D4F1DC3188F94640A4F5944030E846406D9ADBBCE3063540A290296F42053540B316949739373540406FAE4E082B3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,87,5659572775736122687);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n07+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','73ce19d4cccd6a72cdd1132008d167e4',1,1,120.0,1,1,'measured',1,'','[]',1.70000029034670710565e+09,2.12736473083496093741e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'3D239A3DC5F74640BF2A01C72ED54640A9D34039881B47400B0D69E15AF046405410B15AC3293540E4B56B5DF21E3540D0D0FAE2032335400EF532DEA9FC3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,88,5682871181326205807);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n10+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','48170e9c1d41dd465163be82eee54f2f',1,1,120.0,1,1,'measured',1,'','[]',1.70000029362870574002e+09,1.81794879436492919921e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D4E427EF9E054740624670FBB9F7464067844EB366D84640C127511D88F146409C626DE545EE34405FE335099229354068EF0F4DBF243540B1B1523513C83440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,89,2030164451707228888);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n01+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','d5497ed3bf2b12931892a42254754ea1',1,1,120.0,1,1,'measured',1,'','[]',1.70000029362870574002e+09,2.18543925285339355477e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'28882FA417FE46409639A19A58FD464094F01A64F71C4740BA69CF2F87D24640B16D4FE521DA34401345FF11340335400FA0513D911F35406BFDC0BB24F33440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,90,2702860610020965054);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n02+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ab8fa2fd517544fddb7f0b1894e0c4e0',1,1,120.0,1,1,'measured',1,'','[]',1.70000030840217065813e+09,1.83216488361358642578e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'343F51CD34164740A13E1D39A31447401A17A936DC2F474022707ECD782347408D41F8C860E13440C03F9D1AAD03354005086E65F3213540752C708F7AFB3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,91,2612863137791291376);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n08+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','7bb3cc2d44d1fb6a0295ed7f164cc265',1,1,120.0,1,1,'measured',1,'','[]',1.70000031180819368356e+09,2.1513593673706054687e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'61832D18AEE64640FC5D9D348DD84640457A50B3D7F14640A99E442CCDDB4640997BE40A0E38354082EEFAF723443540193EF4E23C2C35405B52E62B6E343540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,93,7001657814625354710);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n12+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f54483564cdc2187eecd0a7abd4b5721',1,1,120.0,1,1,'measured',1,'','[]',1.70000031180819368356e+09,21.1605122089386,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'E40D817266EB4640F9E3FF59CBF646409578798EFF07474090084C2D32EC4640B4C4B9E87AE134401EF8143D8631354047F541E2E20435407A3BFBA2BAE43440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,92,6186921887029547669);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n05+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','2ea4379563da2426cea9d7ca6163e7e6',1,1,120.0,1,1,'measured',1,'','[]',1.70000031548309826854e+09,1.84614725112915039062e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'8FDF15392B01474069A682AD3AED4640B057E76AF3F44640C18E4EB21C1747408475B6E0D30E35408D240214084335402AD8B7E96BE33440DF10B5E825173540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,94,5971318027527544970);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n01+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b1e0458a25a3491f8bec9bca78f48f40',1,1,120.0,1,1,'measured',1,'','[]',1.70000033394457077976e+09,1.83902115821838378906e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'DDBB024B10AD464062567FE5C1954640500CF14543F84640E941A21D04FB4640CF0E3CC0B4033540B62AFC7A7E0635401A1A66FCAA163540042FB2E3453D3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,95,2793400690535541558);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n03+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f8c78bf8b7d6b1745f0d8e3524d8467a',1,1,120.0,1,1,'measured',1,'','[]',1.70000033394457077976e+09,1.87536120414733886718e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'978FA760F9EC4640B0EBD27F7410474035E40132B50447403DE6480EE7364740D20FC22D09D8344086A900E8E8E93440DA788792DDE034404BA5D0598D053540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,96,1068901034259892643);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n07+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','99e07ea7017ae29145d2c9d2c9008c5c',1,1,120.0,1,1,'measured',1,'','[]',1.70000033332178735736e+09,1.94156537055969238281e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D567B97E6A1747409362C67A4B2747401A63CF5F37314740E76F92DF300B474091222FC90DF9344071368F94CBF53440F855FB6CD9FA3440158F7C870DEA3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,97,8804401253470056320);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n10+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ad6750a378688bdf5bb2a07af732e3e2',1,1,120.0,1,1,'measured',1,'','[]',1.70000033332178735736e+09,2.13609921932220458984e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D72ACA5FE8E74640698A10A0C0F14640F426F8D18EF846405D1A8E89E0114740D12C383F881E3540AA854ACE4E103540BDB432D5341C3540975ADFE77C0B3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,98,1266336087643525245);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n08+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','0eb330ec95598836297fff8120325e70',1,1,120.0,1,1,'measured',1,'','[]',1.70000035273744106289e+09,1.98489809036254882812e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'7FA632BF49AC4640CC45D8D730E0464047F1FA162B9946407770AC0B77F14640043B6A015CE834401DB07CF7461E3540E22BBF5CDF193540CBE39DACB4293540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,99,8648974080642119383);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n04+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','2b30ebef113eeae948a331318cb3c627',1,1,120.0,1,1,'measured',1,'','[]',1.70000035273744106289e+09,2.06594760417938232426e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'195298D53D334740FD1517149F3947404AD8ADFAAC084740B94567EF3CF046409EA0791755DA3440D19FA8949B06354043F2398AD7F13440448DFF3C80EA3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,100,5655741554250186350);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n12+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','6121a2e2bb4b4c1681511ffb131fc091',1,1,120.0,1,1,'measured',1,'','[]',1.70000035468277955054e+09,2.10662500858306884761e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'91C3D18009C9464033B1F373C913474084C073CD38FC4640B2D53B79F205474068EE1680E6F5344053454028A60F35409312C5D1EA0335402C84BA90D3003540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,101,7793701342111407170);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n02+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','6a5aa2d9a44a0fc74712ffdfd9520cb0',1,1,120.0,1,1,'measured',1,'','[]',1.70000035468277955054e+09,2.17988548278808593741e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'84E9FCB5960D47407FECBE9821ED4640C314914E58F7464023C3729D77B946402E4A6B528F1035407C9900152AD234407BE047E7E2FB34403D22E61836DD3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,102,8195724116157039604);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n05+n08','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9b8be40b055c1072f2c9b336465d2bfa',1,1,120.0,1,1,'measured',1,'','[]',1.70000037258642196658e+09,1.88263804912567138671e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'5F4D606DD1E8464078FC668E84ED46407561E44F6ED946403B319A2BE1C04640C36EE505A4F93440CDFE8FAA40163540E08833B22F153540C7D37B2E05EA3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,103,6777131073530839235);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n10+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','68cdbeb50cb1442823286c363b6aa460',1,1,120.0,1,1,'measured',1,'','[]',1.7000003764816343784e+09,1.89354889392852783203e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'622433562AF44640FD23288CAE224740E4059F45E0FB46404E7413959E154740EE3242D83A013540F3AEF4C6B1103540498AD06C6DE834407B3E834773F43440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,104,1339916043476558420);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n01+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','5f295ee604ac0ef3ed56e903852bbc36',1,1,120.0,1,1,'measured',1,'','[]',1.7000003764816343784e+09,2.06167993545532226553e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D2B231289DF3464097AD03824EE74640068DADE257F8464039EFF77F9F234740D26910501EF23440887AA324B6E234403D3A7815BEFA34402038F8EB3AF53440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,106,8354853773947471793);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n03+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','ff60c8aa2e3241f4a442c3432cc7cf06',1,1,120.0,1,1,'measured',1,'','[]',1.70000037574902963634e+09,2.09526591300964355464e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'27A5D2CDCDDF4640FA7A570E53FC46400F33E571D0FC464022BC7F01D7FF46408604A1BA99E234401912A3C795183540F5EDB26E3F013540A7F01AA987F03440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,105,7914995535476834870);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n07+n10','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','14f3afc08865c164ed8b028004401a90',1,1,120.0,1,1,'measured',1,'','[]',1.70000039541712331774e+09,2.15890686511993408198e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'D6DBF7002EF04640E8FACAC6552C47402975E8000D07474045E807E65FF246409B8D9DF0CDFF3440A2FAAE4897FE34406796606872E734409092747019F63440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,108,4266990046010435779);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n12+n05','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','39cb9110966ab293b8897c6c015f2577',1,1,120.0,1,1,'measured',1,'','[]',1.70000039709843373293e+09,1.9213153839111328125e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'439F67C6B2EC46408C7A63A37DE74640E53190D7A5D24640C831F2A546084740611F72300DE93440237DB17A450B3540BCC8DD520B003540535995D2C2E13440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,107,3124369981643551133);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n02+n03','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','f9dc2d4c9987fda27094b331d2e5a99d',1,1,120.0,1,1,'measured',1,'','[]',1.70000039709843373293e+09,2.00272150039672851566e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'F007EB17F6D946403EE54D707A0E4740AC9BE6A667F34640C68C08ABAB0D47401BCD20BE32E93440DE31D9BB1BDD3440B10702DD92053540900401BE5D0A3540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,109,2069551874092040571);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n04+n01','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9acab08dd5a55c2cc5f0a0485e56e52b',1,1,120.0,1,1,'measured',1,'','[]',1.70000039709843373293e+09,2.02001280784606933598e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'B3FD8DB47E4147401A5F425AE51F47409A73E62C18EE46404049FF97DFF546400B61993A88F63440B7BBEC9DF321354086CCAF2A961035405F921AB4D7173540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,110,6732177916591696461);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n03+n04','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','c039a6d59c329f36cf9d817594a7d34b',1,1,120.0,1,1,'measured',1,'','[]',1.70000041729856181142e+09,1.81830399036407470703e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'8E7478C513174740CAA446AEF2FD4640086ED158620F47409E56451CEBC34640FD30813BA2D33440C0B3AB5668C134400A7FB7CA9B1435406BCD2E6CC7FA3440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,111,8076009737575224286);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n01+n07','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','9aa5de5790e8b231fa212ffbeb0b7b8a',1,1,120.0,1,1,'measured',1,'','[]',1.70000041729856181142e+09,2.10749142169952392573e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'50EB57D0A2FA46401ECE351AD4E14640EA36BAD5F9F44640EC98C17E2D174740CB36A5BFF6E934409D8A334C31CB3440D461262A86E934402298347F44E93440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,113,7233321556410714955);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n08+n12','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','b7f05ca4f208f2468af794ac6303d54c',1,1,120.0,1,1,'measured',1,'','[]',1.70000041700619196893e+09,2.05224525928497314453e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'12BD4872DEA84640BB90A626AED14640AAE0579B57D14640862540D20FCE4640D0BCDA98281B354056D0BE58362235403B552F3D2B033540C6BD9CA59F143540000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,112,4837157887767345002);
INSERT INTO "executions" VALUES('1.0.1/pair_torch/n05+n02','pair_torch','1','{"samples":10,"sizes":"64,1024,65536,8388608"}','8599d1365fed968cadb804a527d47b1f',1,1,120.0,1,1,'measured',1,'','[]',1.70000041729856181142e+09,2.15148501396179199214e+01,'0b6e03e5b8919d432f42c48f73a411bf','raw',X'8C22F5F6D21947408AB1435B3C0247403063AC7A2416474035E54BCFF3044740CAA6D6801DF3344019BCE4E38ADA3440EF48EF10380A35402B5C9B76E8D93440000000000000F03F000000000000F03F000000000000F03F000000000000F03F','44136fa355b3678a1146ad16f7e8649e','',1,114,5168723155616557257);
CREATE TABLE heard (
	cluster TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	id TEXT NOT NULL, 
	PRIMARY KEY (cluster, kind, id)
);
INSERT INTO "heard" VALUES('prod','campaign','accept-20261129-211800-0f09');
INSERT INTO "heard" VALUES('prod','event_record','repair-done-20261129-211810-5698');
INSERT INTO "heard" VALUES('prod','event_record','incident-reported-20261129-211816-7541');
CREATE TABLE holds (
	node TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	until DOUBLE NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (node, cluster)
);
CREATE TABLE imports (
	"key" INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	file TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	what TEXT NOT NULL, 
	campaign TEXT NOT NULL, 
	new INTEGER NOT NULL, 
	completed INTEGER NOT NULL, 
	known INTEGER NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE incidents (
	node TEXT NOT NULL, 
	category TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	told_by INTEGER, 
	ended_by INTEGER, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (node, category, started_at, cluster)
);
CREATE TABLE jobs (
	id TEXT NOT NULL, 
	participants VARCHAR(32) NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	planned_s DOUBLE, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (id, cluster), 
	FOREIGN KEY(participants) REFERENCES participants (digest)
);
CREATE TABLE keepers (
	seen_at DOUBLE, 
	turned_at DOUBLE NOT NULL, 
	turned_by TEXT NOT NULL, 
	breakers TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (cluster)
);
INSERT INTO "keepers" VALUES(NULL,1.79598710165904903415e+09,'admin@vm','{"by_scope":{"fleet":{"accepted":0,"is_open":true}}}','prod',1580306488981716992);
CREATE TABLE kept_by (
	name TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	said_by TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (cluster)
);
CREATE TABLE layouts (
	digest VARCHAR(32) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "layouts" VALUES('7173260835b182d3c80d29d5e15d092c','[["tflops","cuda:0",4],["tflops","cuda:1",4],["agreement","cuda:0",4],["agreement","cuda:1",4]]');
INSERT INTO "layouts" VALUES('0b6e03e5b8919d432f42c48f73a411bf','[["bandwidth_gbps","cuda",4],["latency_us","cuda",4],["agreement","cuda",4]]');
CREATE TABLE lives (
	document TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	node TEXT NOT NULL, 
	state TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (cluster, node)
);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n01"}','prod','n01','in-service',3323326315028807680);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n02"}','prod','n02','in-service',3415197877398405120);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n03","out_code":"REPAIR","owed":[{"about":"","at":1795987090.0256495,"confidence":1.0,"debt":"repair","id":"","mix":{}}],"repair_done_at":1795987090.0256495,"sent_at":1795987090.7039764}','prod','n03','draining',7340764330578673664);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n04"}','prod','n04','in-service',3283950935327375360);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n05","owed":[{"about":"ib_link","at":1795987096.0826228,"confidence":1.0,"debt":"incident","id":"","mix":{}}]}','prod','n05','draining',4104748301176274944);
INSERT INTO "lives" VALUES('{"defect":{"at":1795987085.3039384,"campaign":"accept-20261129-211800-0f09","code":"GEMM.CRASH","reason":"gemm: failed 3 times here, it runs on 10 of 11 nodes: gemm was killed by SIGSEGV (planted)"},"judged_at":1795987085.3039384,"node":"n06","ticket":"n06/accept-20261129-211800-0f09"}','prod','n06','draining',8794794065183899648);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n07"}','prod','n07','in-service',3236122441512124416);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n08"}','prod','n08','in-service',2917559387113390080);
INSERT INTO "lives" VALUES('{"defect":{"at":1795987085.3039384,"campaign":"accept-20261129-211800-0f09","code":"GEMM.TFLOPS","reason":"matrix products 21% slower than normal on all 2 GPUs (worst cuda:1): 569 instead of 719 TFLOP/s"},"judged_at":1795987085.3039384,"node":"n09","ticket":"n09/accept-20261129-211800-0f09"}','prod','n09','draining',8452442230609674240);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n10"}','prod','n10','in-service',8249408917390491648);
INSERT INTO "lives" VALUES('{"node":"n11","owed":[{"about":"","at":1795987085.3039384,"confidence":1.0,"debt":"answer","id":"","mix":{}}]}','prod','n11','suspect',3399882019725901824);
INSERT INTO "lives" VALUES('{"judged_at":1795987085.3039384,"node":"n12"}','prod','n12','in-service',8347004928136314880);
CREATE TABLE look_details (
	job TEXT NOT NULL, 
	lines TEXT NOT NULL, 
	page BLOB NOT NULL, 
	stream BLOB NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY (job, cluster)
);
CREATE TABLE looks (
	job TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	nodes INTEGER NOT NULL, 
	suspects INTEGER NOT NULL, 
	anomalies INTEGER NOT NULL, 
	job_ended BOOLEAN NOT NULL, 
	trouble TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY (job, cluster)
);
CREATE TABLE messages (
	"key" TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	topic TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	sentence TEXT NOT NULL, 
	step TEXT NOT NULL, 
	ends BOOLEAN NOT NULL, 
	delivery TEXT NOT NULL, 
	tries INTEGER NOT NULL, 
	due DOUBLE NOT NULL, 
	note TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY ("key", cluster)
);
CREATE TABLE node_verdicts (
	node TEXT NOT NULL, 
	judgement TEXT NOT NULL, 
	code TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	owes TEXT, 
	campaign INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, position), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
INSERT INTO "node_verdicts" VALUES('n01','healthy','OK','all 28 metrics are as the fleet',NULL,1,0,6362514829458014208);
INSERT INTO "node_verdicts" VALUES('n02','healthy','OK','all 28 metrics are as the fleet',NULL,1,1,7609170722534981632);
INSERT INTO "node_verdicts" VALUES('n03','healthy','OK','all 28 metrics are as the fleet',NULL,1,2,5557874129849286656);
INSERT INTO "node_verdicts" VALUES('n04','healthy','OK','all 28 metrics are as the fleet',NULL,1,3,735001056194330624);
INSERT INTO "node_verdicts" VALUES('n05','healthy','OK','all 28 metrics are as the fleet',NULL,1,4,3019178588214657024);
INSERT INTO "node_verdicts" VALUES('n06','defective','GEMM.CRASH','gemm: failed 3 times here, it runs on 10 of 11 nodes: gemm was killed by SIGSEGV (planted)','[]',1,5,3091931559155776297);
INSERT INTO "node_verdicts" VALUES('n07','healthy','OK','all 28 metrics are as the fleet',NULL,1,6,4362860463977922560);
INSERT INTO "node_verdicts" VALUES('n08','healthy','OK','all 28 metrics are as the fleet',NULL,1,7,5577471026238849024);
INSERT INTO "node_verdicts" VALUES('n09','defective','GEMM.TFLOPS','matrix products 21% slower than normal on all 2 GPUs (worst cuda:1): 569 instead of 719 TFLOP/s','[]',1,8,909016518317882153);
INSERT INTO "node_verdicts" VALUES('n10','healthy','OK','all 28 metrics are as the fleet',NULL,1,9,1403235136375357440);
INSERT INTO "node_verdicts" VALUES('n11','unknown','NODE-LOST','no longer answers (planted)','["gemm","pair_torch"]',1,10,7444243202638713417);
INSERT INTO "node_verdicts" VALUES('n12','healthy','OK','all 28 metrics are as the fleet',NULL,1,11,2876650901655781376);
CREATE TABLE part_verdicts (
	parts TEXT NOT NULL, 
	nodes TEXT NOT NULL, 
	benchmarks TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	judgement TEXT NOT NULL, 
	code TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	confidence DOUBLE, 
	evidence TEXT NOT NULL, 
	campaign INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, position), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
CREATE TABLE participants (
	digest VARCHAR(32) NOT NULL, 
	nodes TEXT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "participants" VALUES('16bbd84c565c3df06b5bf0f62b5a89bc','["n06"]');
INSERT INTO "participants" VALUES('b73efceac62330bea938b46e36892ab1','["n11"]');
INSERT INTO "participants" VALUES('0ada303af52f2aaf99603c379d1514fd','["n04"]');
INSERT INTO "participants" VALUES('58abc3449e2591f5c9e9f5071424bfdd','["n05"]');
INSERT INTO "participants" VALUES('78c1f1d1c45a184eed95c9c6b41fca62','["n02"]');
INSERT INTO "participants" VALUES('215797f009f33aede7ac1cbb412710bc','["n07"]');
INSERT INTO "participants" VALUES('5fca2986f903b984f55b54ec6c3b22b9','["n01"]');
INSERT INTO "participants" VALUES('665911e25d9da672a7ec9cd551aa3de4','["n03"]');
INSERT INTO "participants" VALUES('68d40bf582a306a0591df953ae2c0000','["n09"]');
INSERT INTO "participants" VALUES('83bfff7843159aa8868d835ad2d47425','["n10"]');
INSERT INTO "participants" VALUES('8f094418b348834776451353c10d8701','["n08"]');
INSERT INTO "participants" VALUES('b0915a2e8ebfedf5553e3dfb41ecbf7f','["n12"]');
INSERT INTO "participants" VALUES('21fc5a437ef9e9834f20a0643a3481e4','["n04","n05"]');
INSERT INTO "participants" VALUES('75a36f5ef0357198847430868b8ed79c','["n07","n03"]');
INSERT INTO "participants" VALUES('bea609de1b7d6b72c60a84e9c96b65e6','["n10","n01"]');
INSERT INTO "participants" VALUES('7d4c2352b28e7af7ccdcb023941bc806','["n02","n08"]');
INSERT INTO "participants" VALUES('e9b17990d30f8beddf746ea65f48ea61','["n05","n07"]');
INSERT INTO "participants" VALUES('85660dc3fef7c36344999199a7df2dc8','["n12","n02"]');
INSERT INTO "participants" VALUES('90f2ef52172ce0b5c7fbc94188587eb6','["n03","n10"]');
INSERT INTO "participants" VALUES('b54100030d90a5774de88ecd33580aa7','["n08","n04"]');
INSERT INTO "participants" VALUES('77ad4d13d3bcd991f24805602db94898','["n04","n12"]');
INSERT INTO "participants" VALUES('d5497ed3bf2b12931892a42254754ea1','["n01","n03"]');
INSERT INTO "participants" VALUES('48170e9c1d41dd465163be82eee54f2f','["n10","n05"]');
INSERT INTO "participants" VALUES('73ce19d4cccd6a72cdd1132008d167e4','["n07","n08"]');
INSERT INTO "participants" VALUES('f54483564cdc2187eecd0a7abd4b5721','["n12","n07"]');
INSERT INTO "participants" VALUES('ab8fa2fd517544fddb7f0b1894e0c4e0','["n02","n04"]');
INSERT INTO "participants" VALUES('7bb3cc2d44d1fb6a0295ed7f164cc265','["n08","n10"]');
INSERT INTO "participants" VALUES('2ea4379563da2426cea9d7ca6163e7e6','["n05","n01"]');
INSERT INTO "participants" VALUES('99e07ea7017ae29145d2c9d2c9008c5c','["n07","n02"]');
INSERT INTO "participants" VALUES('b1e0458a25a3491f8bec9bca78f48f40','["n01","n08"]');
INSERT INTO "participants" VALUES('f8c78bf8b7d6b1745f0d8e3524d8467a','["n03","n05"]');
INSERT INTO "participants" VALUES('ad6750a378688bdf5bb2a07af732e3e2','["n10","n12"]');
INSERT INTO "participants" VALUES('0eb330ec95598836297fff8120325e70','["n08","n03"]');
INSERT INTO "participants" VALUES('6121a2e2bb4b4c1681511ffb131fc091','["n12","n01"]');
INSERT INTO "participants" VALUES('6a5aa2d9a44a0fc74712ffdfd9520cb0','["n02","n10"]');
INSERT INTO "participants" VALUES('2b30ebef113eeae948a331318cb3c627','["n04","n07"]');
INSERT INTO "participants" VALUES('5f295ee604ac0ef3ed56e903852bbc36','["n01","n02"]');
INSERT INTO "participants" VALUES('9b8be40b055c1072f2c9b336465d2bfa','["n05","n08"]');
INSERT INTO "participants" VALUES('ff60c8aa2e3241f4a442c3432cc7cf06','["n03","n12"]');
INSERT INTO "participants" VALUES('68cdbeb50cb1442823286c363b6aa460','["n10","n04"]');
INSERT INTO "participants" VALUES('39cb9110966ab293b8897c6c015f2577','["n12","n05"]');
INSERT INTO "participants" VALUES('f9dc2d4c9987fda27094b331d2e5a99d','["n02","n03"]');
INSERT INTO "participants" VALUES('9acab08dd5a55c2cc5f0a0485e56e52b','["n04","n01"]');
INSERT INTO "participants" VALUES('14f3afc08865c164ed8b028004401a90','["n07","n10"]');
INSERT INTO "participants" VALUES('8599d1365fed968cadb804a527d47b1f','["n05","n02"]');
INSERT INTO "participants" VALUES('b7f05ca4f208f2468af794ac6303d54c','["n08","n12"]');
INSERT INTO "participants" VALUES('c039a6d59c329f36cf9d817594a7d34b','["n03","n04"]');
INSERT INTO "participants" VALUES('9aa5de5790e8b231fa212ffbeb0b7b8a','["n01","n07"]');
CREATE TABLE periodic_tasks (
	task TEXT NOT NULL, 
	due DOUBLE NOT NULL, 
	began DOUBLE NOT NULL, 
	ended DOUBLE, 
	"end" TEXT, 
	tries INTEGER NOT NULL, 
	sentence TEXT NOT NULL, 
	campaign TEXT NOT NULL, 
	proposal TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	PRIMARY KEY (task, due, cluster)
);
CREATE TABLE repairs (
	node TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	action TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (node, started_at, cluster)
);
INSERT INTO "repairs" VALUES('n03',1.79598709002564954758e+09,1.79598709002564954758e+09,'','prod',5630741170603687936);
CREATE TABLE rosters (
	digest VARCHAR(32) NOT NULL, 
	document BLOB NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "rosters" VALUES('1136423b99b328d6162a985b68561ce2',X'780165D0390E80301043D1BBA4A6C8B088E52AA31428D474DC9F042936E06EF4E75576F770460BA90BF93AF62D96EB97EAF349BD2A26A8411513D4A88A096A52C50435AB62825A543141ADAA989AB2BAD277AF5782E2386D55632A2ADD707167D1');
INSERT INTO "rosters" VALUES('ce5c32d4f1ac8350b120c8b686d20b4e',X'78018B8E8E56CA3330548AD5514A2E4D49B43200B2D08440926021234C550821B82A634C550821B82A134C550821B82A534C550821B82A734C550821B82A0B4C550821982A4390FF5143024908AE0AE16D587819228480AA6201C7585D74');
INSERT INTO "rosters" VALUES('ee6722e4884f60d6fe6d9a44e22bba6c',X'78017592390E80300C04FF923A05E110FC25A24050D3F17F829702794C93482367E4AC5D6B4D6757526E679FD69CF6EBD8DAFDC1438CE7182F1EF7E68644788CAB6349E97CF5606E4884A7B0FA4752F0F9D1DCC54B84E116462686E99E62B7303A11865B1851CDE686441863108E258C6A313724C21883E11F09326975CF0EFABC5FECDD2FF66310A65BCB06B7B08FAA3D7F3A815BF83386F506CF32D8A1');
CREATE TABLE row_counts (
	name TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	rows INTEGER NOT NULL, 
	total BIGINT NOT NULL, 
	PRIMARY KEY (name, cluster)
);
INSERT INTO "row_counts" VALUES('attributes','prod',12,12383523910);
INSERT INTO "row_counts" VALUES('watches','prod',12,11543620728);
INSERT INTO "row_counts" VALUES('jobs','prod',0,0);
INSERT INTO "row_counts" VALUES('repairs','prod',1,1311009091);
INSERT INTO "row_counts" VALUES('event_records','prod',2,3834690296);
CREATE TABLE tokens (
	name TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	made_at DOUBLE NOT NULL, 
	made_by TEXT NOT NULL, 
	revoked_at DOUBLE, 
	expires_at DOUBLE, 
	PRIMARY KEY (name)
);
CREATE TABLE verdicts (
	participants VARCHAR(32) NOT NULL, 
	benchmark TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	device TEXT NOT NULL, 
	judgement TEXT NOT NULL, 
	code TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	similarity DOUBLE, 
	alpha DOUBLE, 
	campaign INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (campaign, position), 
	FOREIGN KEY(participants) REFERENCES participants (digest), 
	FOREIGN KEY(campaign) REFERENCES campaigns ("key")
);
INSERT INTO "verdicts" VALUES('16bbd84c565c3df06b5bf0f62b5a89bc','gemm','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','','','defective','GEMM.CRASH','failed 3 times here, it runs on 10 of 11 nodes: gemm was killed by SIGSEGV (planted)',NULL,NULL,1,0,29588321759920128);
INSERT INTO "verdicts" VALUES('68d40bf582a306a0591df953ae2c0000','gemm','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','tflops','cuda:1','defective','GEMM.TFLOPS','matrix products 21% slower than normal on cuda:1: 569 instead of 719 TFLOP/s',7.919554340679896276e-01,0.95,1,1,4265829099697602560);
INSERT INTO "verdicts" VALUES('68d40bf582a306a0591df953ae2c0000','gemm','{"dtypes":"auto","gpus":"at_once","samples":4,"shapes":"square","size":0}','tflops','cuda:0','defective','GEMM.TFLOPS','matrix products 21% slower than normal on cuda:0: 570 instead of 719 TFLOP/s',7.92436589933319668332e-01,0.95,1,2,4371423683873341440);
INSERT INTO "verdicts" VALUES('b73efceac62330bea938b46e36892ab1','','','','','unknown','NODE-LOST','no longer answers (planted)',NULL,NULL,1,3,4648628320630472704);
CREATE TABLE watches (
	node TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	until DOUBLE, 
	told_by INTEGER, 
	cluster TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (node, since, cluster)
);
INSERT INTO "watches" VALUES('n01',1.7959870853039383888e+09,NULL,NULL,'prod',5892596771065954304);
INSERT INTO "watches" VALUES('n02',1.7959870853039383888e+09,NULL,NULL,'prod',6491247897105924096);
INSERT INTO "watches" VALUES('n03',1.7959870853039383888e+09,NULL,NULL,'prod',1552506406920257536);
INSERT INTO "watches" VALUES('n04',1.7959870853039383888e+09,NULL,NULL,'prod',1640139162986217472);
INSERT INTO "watches" VALUES('n05',1.7959870853039383888e+09,NULL,NULL,'prod',6439274631001014272);
INSERT INTO "watches" VALUES('n06',1.7959870853039383888e+09,NULL,NULL,'prod',5949211333449744384);
INSERT INTO "watches" VALUES('n07',1.7959870853039383888e+09,NULL,NULL,'prod',2094683965762830336);
INSERT INTO "watches" VALUES('n08',1.7959870853039383888e+09,NULL,NULL,'prod',6061004272693149696);
INSERT INTO "watches" VALUES('n09',1.7959870853039383888e+09,NULL,NULL,'prod',1982450861091061760);
INSERT INTO "watches" VALUES('n10',1.7959870853039383888e+09,NULL,NULL,'prod',804023194980712448);
INSERT INTO "watches" VALUES('n11',1.7959870853039383888e+09,NULL,NULL,'prod',4951251621817352192);
INSERT INTO "watches" VALUES('n12',1.7959870853039383888e+09,NULL,NULL,'prod',5721083385313492992);
CREATE INDEX actions_by_cluster ON actions (cluster, stage);
CREATE INDEX campaigns_by_cluster ON campaigns (cluster, finished_at);
CREATE INDEX decisions_by_cluster ON decisions (cluster);
CREATE INDEX incidents_by_cluster ON incidents (cluster);
CREATE INDEX repairs_by_cluster ON repairs (cluster);
CREATE INDEX attributes_by_cluster ON attributes (cluster);
CREATE INDEX watches_by_cluster ON watches (cluster);
CREATE INDEX executions_by_benchmark ON executions (benchmark, version, started_at);
CREATE INDEX executions_by_participants ON executions (participants);
CREATE INDEX executions_how_long ON executions (ended, benchmark, parameters, duration_s);
CREATE INDEX executions_who_and_what ON executions (campaign, ended, participants, benchmark);
CREATE INDEX jobs_by_cluster ON jobs (cluster);
CREATE INDEX node_verdicts_by_node ON node_verdicts (node);
CREATE INDEX verdicts_by_participants ON verdicts (participants);
CREATE INDEX messages_by_delivery ON messages (cluster, delivery);
COMMIT;
