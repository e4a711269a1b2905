# The names of infra/compose.example.env, each a place whose value is put in by hand:
#     aws secretsmanager put-secret-value --secret-id lsm/PREFECT_AUTH_STRING --secret-string ...
# so that no value passes through Terraform or lies in its state.
locals {
  # Who may read what: the servers their own, workers what a client needs.
  server_secrets = toset([
    "PREFECT_DATABASE_PASSWORD",
    "MLFLOW_DATABASE_PASSWORD",
    "MLFLOW_SECRET_KEY",
  ])
  client_secrets = toset([
    "PREFECT_AUTH_STRING",
    "MLFLOW_ADMIN_PASSWORD",
  ])
}

resource "aws_secretsmanager_secret" "all" {
  for_each = setunion(local.server_secrets, local.client_secrets)

  name                    = "${var.name}/${each.value}"
  kms_key_id              = aws_kms_key.data.arn
  recovery_window_in_days = 30
}
