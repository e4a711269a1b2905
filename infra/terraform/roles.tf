locals {
  issuer = split("oidc-provider/", var.oidc_provider_arn)[1]
  # The part of the bucket that each service account of infra/kubernetes works in.
  folders = {
    worker = "store"
    mlflow = "artifacts"
  }
  readable = {
    worker = local.client_secrets
    mlflow = setsubtract(setunion(local.server_secrets, local.client_secrets), ["PREFECT_DATABASE_PASSWORD", "PREFECT_AUTH_STRING"])
  }
}

data "aws_iam_policy_document" "trust" {
  for_each = local.folders

  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = [var.oidc_provider_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["system:serviceaccount:${var.namespace}:${each.key}"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "permissions" {
  for_each = local.folders

  statement {
    sid       = "SeeOwnFolder"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.store.arn]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = [each.value, "${each.value}/*"]
    }
  }

  # Deleting makes a marker; replaced versions cannot be removed by these roles.
  statement {
    sid = "ReadAndWriteOwnFolder"
    actions = [
      "s3:GetObject",
      "s3:PutObject",
      "s3:DeleteObject",
      "s3:AbortMultipartUpload",
      "s3:ListMultipartUploadParts",
    ]
    resources = ["${aws_s3_bucket.store.arn}/${each.value}/*"]
  }

  statement {
    sid       = "UseTheKey"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [aws_kms_key.data.arn]
  }

  statement {
    sid       = "ReadOwnSecrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [for secret in local.readable[each.key] : aws_secretsmanager_secret.all[secret].arn]
  }
}

resource "aws_iam_role" "service_account" {
  for_each = local.folders

  name                 = "${var.name}-${each.key}"
  assume_role_policy   = data.aws_iam_policy_document.trust[each.key].json
  max_session_duration = 43200
}

resource "aws_iam_role_policy" "service_account" {
  for_each = local.folders

  name   = "own-folder-and-secrets"
  role   = aws_iam_role.service_account[each.key].id
  policy = data.aws_iam_policy_document.permissions[each.key].json
}
