{{- define "anubis.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "anubis.labels" -}}
app.kubernetes.io/name: anubis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "anubis.tls" -}}
{{- if .Values.tls.certManager }}{{ .Release.Name }}-tls{{ else }}{{ .Values.tls.secret }}{{ end }}
{{- end }}

{{- define "anubis.url" -}}
{{ if include "anubis.tls" . }}https{{ else }}http{{ end }}://{{ .Release.Name }}.{{ .Release.Namespace }}.svc:8750
{{- end }}

{{- /* What pods get: what the chart knows, and what the values change. */ -}}
{{- define "anubis.gate" -}}
{{- $known := dict "service" (include "anubis.url" .) "cluster" .Values.cluster.name "namespace" .Release.Namespace "authority" "/etc/anubis/tls/ca.crt" }}
{{- toYaml (merge (deepCopy .Values.gate.settings) $known) }}
{{- end }}

{{- /* The cluster's file. */ -}}
{{- define "anubis.cluster" -}}
{{- $kubernetes := dict "kind" "kubernetes" "nodes" .Values.cluster.nodes "namespace" .Release.Namespace }}
{{- $known := dict "executor" "ray" "name" .Values.cluster.name "orchestrator" $kubernetes }}
{{- if .Values.measure.enabled }}
{{- $pod := dict "image" (include "anubis.image" .) "privileged" .Values.measure.privileged }}
{{- with .Values.measure.runtimeClass }}{{ $_ := set $pod "runtime_class" . }}{{ end }}
{{- with .Values.image.pullSecrets }}{{ $_ := set $pod "pull_secret" (first .) }}{{ end }}
{{- $known = merge $known (dict "start" "kubernetes" "start_pod" $pod "ports" .Values.measure.ports) }}
{{- end }}
{{- toYaml (merge (deepCopy .Values.cluster.more) $known) }}
{{- end }}

{{- define "anubis.env" -}}
- {name: ANUBIS_HOME, value: /var/lib/anubis}
{{- with .Values.history.secret }}
- name: ANUBIS_HISTORY
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: url}
{{- end }}
{{- end }}

{{- define "anubis.closed" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
