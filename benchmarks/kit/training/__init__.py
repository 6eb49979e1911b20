"""What the training programs share: models, steps, and how they are measured."""
