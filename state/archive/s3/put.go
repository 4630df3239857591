package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

// Put implements archive.Objects. An upload has several parts, whose digests the storage checks; its last request gives the object its name, on the condition that there
// is none.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxPut, fmt.Errorf("the upload took more than %v", maxPut))
	defer cancel()
	name = b.o.Prefix + name
	id, err := b.client.NewMultipartUpload(ctx, b.o.Bucket, name, minio.PutObjectOptions{})
	if err != nil {
		return outcome("begin", err)
	}
	err = b.upload(ctx, name, id, r)
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		b.client.AbortMultipartUpload(late, b.o.Bucket, name, id) // if that fails, a later Clean does it
	}
	return err
}

func (b *Bucket) upload(ctx context.Context, name, id string, r io.Reader) error {
	var parts []minio.CompletePart
	buf := make([]byte, partSize)
	for more := true; more; {
		n, err := io.ReadFull(r, buf)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			more = false
		case err != nil:
			return err
		}
		if n == 0 && len(parts) > 0 {
			break
		}
		if len(parts) == maxParts {
			return fmt.Errorf("the object has more than %d bytes", int64(maxParts)*partSize)
		}
		part, err := b.client.PutObjectPart(ctx, b.o.Bucket, name, id, len(parts)+1, bytes.NewReader(buf[:n]), int64(n),
			minio.PutObjectPartOptions{Sha256Hex: fmt.Sprintf("%x", sha256.Sum256(buf[:n]))})
		if err != nil {
			return outcome("put", err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	}
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err := b.client.CompleteMultipartUpload(ctx, b.o.Bucket, name, id, parts, o)
	return outcome("complete", err)
}
