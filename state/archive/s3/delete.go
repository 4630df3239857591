package s3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/custody-project/custody/state/archive"
)

// Delete implements archive.Objects. In a bucket that keeps versions it removes all of them, and the markers of deletions.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := b.abort(ctx, name, time.Time{}); err != nil {
		return err
	}
	versions, err := b.versions(ctx, name)
	if err != nil {
		return err
	}
	for _, v := range versions {
		err := outcome("delete", b.client.RemoveObject(ctx, b.o.Bucket, v.Key, minio.RemoveObjectOptions{VersionID: v.VersionID}))
		if err != nil && !errors.Is(err, archive.ErrNotFound) {
			return err
		}
	}
	return nil
}

// versions lists what a name has: all versions if the bucket has ever kept some, else the object.
func (b *Bucket) versions(ctx context.Context, name string) (list []minio.ObjectInfo, err error) {
	config, err := b.client.GetBucketVersioning(ctx, b.o.Bucket)
	var res minio.ErrorResponse
	if errors.As(err, &res) && res.Code == "NotImplemented" || errors.As(err, &res) && res.Code == "VersioningNotConfigured" {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out whether the bucket keeps versions: %w", err)
	}
	name = b.o.Prefix + name
	for o := range b.client.ListObjectsIter(ctx, b.o.Bucket, minio.ListObjectsOptions{Prefix: name, Recursive: true, WithVersions: config.Status != ""}) {
		if o.Err != nil {
			return nil, outcome("list versions of", o.Err)
		}
		if o.Key == name {
			list = append(list, o)
		}
	}
	return list, ctx.Err()
}

// uploads lists the unfinished uploads below a prefix.
func (b *Bucket) uploads(ctx context.Context, prefix string) (list []minio.ObjectMultipartInfo, err error) {
	key, id := "", ""
	for {
		page, err := b.client.ListMultipartUploads(ctx, b.o.Bucket, b.o.Prefix+prefix, key, id, "", 1000)
		if err != nil {
			return nil, fmt.Errorf("list unfinished uploads: %w", err)
		}
		list = append(list, page.Uploads...)
		if !page.IsTruncated || page.NextKeyMarker == "" {
			return list, nil
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// abort aborts the unfinished uploads of a name, or if it is empty, all that began before a time.
func (b *Bucket) abort(ctx context.Context, name string, before time.Time) error {
	list, err := b.uploads(ctx, name)
	if err != nil {
		return err
	}
	for _, u := range list {
		if name != "" && u.Key != b.o.Prefix+name || name == "" && !u.Initiated.Before(before) {
			continue
		}
		err := b.client.AbortMultipartUpload(ctx, b.o.Bucket, u.Key, u.UploadID)
		if res := (minio.ErrorResponse{}); errors.As(err, &res) && res.Code == "NoSuchUpload" {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("abort an unfinished upload: %w", err)
		}
	}
	return nil
}

// Rest implements archive.Objects.
func (b *Bucket) Rest(ctx context.Context, name string) (rest []string, err error) {
	versions, err := b.versions(ctx, name)
	for _, v := range versions {
		rest = append(rest, fmt.Sprintf("object %s in bucket %s, version %q", v.Key, b.o.Bucket, v.VersionID))
	}
	uploads, uploadsErr := b.uploads(ctx, name)
	for _, u := range uploads {
		if u.Key == b.o.Prefix+name {
			rest = append(rest, fmt.Sprintf("unfinished upload of object %s in bucket %s", u.Key, b.o.Bucket))
		}
	}
	return rest, errors.Join(err, uploadsErr)
}

// Clean implements archive.Objects.
func (b *Bucket) Clean(ctx context.Context, before time.Time) error {
	return b.abort(ctx, "", before)
}
