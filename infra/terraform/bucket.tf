data "aws_caller_identity" "current" {}

resource "aws_kms_key" "data" {
  description             = "${var.name}: bucket, database and secrets"
  enable_key_rotation     = true
  deletion_window_in_days = 30
}

resource "aws_kms_alias" "data" {
  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.data.key_id
}

# store/ holds data, checkpoints and reports (LSM_STORE), artifacts/ what MLflow keeps.
resource "aws_s3_bucket" "store" {
  # Names are shared by all accounts of the world.
  bucket = "${var.name}-${data.aws_caller_identity.current.account_id}-${var.region}"

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_ownership_controls" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "store" {
  bucket                  = aws_s3_bucket.store.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "store" {
  bucket = aws_s3_bucket.store.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.data.arn
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "store" {
  bucket     = aws_s3_bucket.store.id
  depends_on = [aws_s3_bucket_versioning.store]

  # A killed upload leaves parts that cost money and that nobody sees.
  rule {
    id     = "abandoned-uploads"
    status = "Enabled"
    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }

  rule {
    id     = "replaced-objects"
    status = "Enabled"
    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.backup_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  # Whoever works on a cell writes its claim again every ten seconds: nobody wants the old ones back.
  rule {
    id     = "old-claims"
    status = "Enabled"

    filter {
      prefix = "${local.folders.worker}/claims/"
    }

    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }
}

data "aws_iam_policy_document" "encrypted_transport" {
  statement {
    sid       = "EncryptedTransportOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.store.arn, "${aws_s3_bucket.store.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "store" {
  bucket     = aws_s3_bucket.store.id
  policy     = data.aws_iam_policy_document.encrypted_transport.json
  depends_on = [aws_s3_bucket_public_access_block.store]
}
