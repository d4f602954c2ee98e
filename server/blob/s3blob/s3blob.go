// Package s3blob keeps the objects of a symbol server in a bucket of S3 or of a service that
// speaks its protocol, with If-None-Match and If-Match on PUT.
package s3blob

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hallmark/server/blob"
)

// Store is a [blob.Store] in a bucket.
type Store struct {
	core           *minio.Core
	bucket, prefix string
	url            string

	// swaps are held while an object is replaced, by the hash of its key. Amazon's service does that
	// in one step. versitygw 1.8 over a directory looks at the tag, and writes later: there at
	// least the goroutines of one process do not overtake each other.
	swaps [64]sync.Mutex

	tagged atomic.Bool // a tag was the MD5 sum of its object
}

// retries of a request that failed in a way that may pass. The client of the library waits
// between them.
const retries = 3

// Open returns the store that a URL names: s3://BUCKET/PREFIX. In its query may stand
// endpoint, the URL of a service other than Amazon's, and region. The credentials are those of
// the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), of the file
// ~/.aws/credentials, or of the machine's role. AWS_ENDPOINT_URL and AWS_REGION stand in for
// what the query lacks; getenv returns them. No request is made.
func Open(raw string, getenv func(string) string) (*Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "s3" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("%q: not s3://BUCKET/PREFIX", u.Redacted())
	}
	q := u.Query()
	for name := range q {
		if name != "endpoint" && name != "region" {
			return nil, fmt.Errorf("%s: unknown parameter %q: endpoint and region are known", u.Redacted(), name)
		}
	}
	s := &Store{bucket: u.Host, prefix: strings.Trim(u.Path, "/"), url: "s3://" + u.Host + u.Path}
	if s.prefix != "" {
		if err := blob.CheckKey(s.prefix); err != nil {
			return nil, err
		}
		s.prefix += "/"
	}
	s.core, err = newCore(or(q.Get("endpoint"), getenv("AWS_ENDPOINT_URL")), or(q.Get("region"), getenv("AWS_REGION")))
	return s, err
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// newCore returns the client of a service, of Amazon's by default.
func newCore(endpoint, region string) (*minio.Core, error) {
	opt := &minio.Options{
		Secure: true, Region: region, MaxRetries: retries,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
		}),
	}
	if endpoint == "" {
		return minio.NewCore("s3.amazonaws.com", opt)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q: not http://HOST:PORT or https://HOST:PORT", endpoint)
	}
	opt.Secure = u.Scheme == "https"
	opt.BucketLookup = minio.BucketLookupPath
	return minio.NewCore(u.Host, opt)
}

// String returns the URL of the store.
func (s *Store) String() string { return s.url }

// MakeBucket makes the bucket if it is not there.
func (s *Store) MakeBucket(ctx context.Context) error {
	ok, err := s.core.BucketExists(ctx, s.bucket)
	if err == nil && !ok {
		err = s.core.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{})
	}
	return failed("", err, blob.ErrExist)
}

// failed returns an error of the service as one of stores. conflict is what a condition that
// did not hold means.
func failed(key string, err, conflict error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", key, err)
	}
	r := minio.ToErrorResponse(err)
	switch {
	case r.Code == "NoSuchBucket":
		return fmt.Errorf("%s: %w: the bucket is gone", key, blob.ErrUnavailable)
	case r.StatusCode == http.StatusNotFound && errors.Is(conflict, blob.ErrChanged):
		return fmt.Errorf("%s: %w", key, blob.ErrChanged)
	case r.StatusCode == http.StatusNotFound, r.Code == "NoSuchKey":
		return fmt.Errorf("%s: %w", key, blob.ErrNotExist)
	case r.StatusCode == http.StatusPreconditionFailed, r.StatusCode == http.StatusConflict && conflict != nil:
		return fmt.Errorf("%s: %w", key, conflict)
	case r.StatusCode == http.StatusInsufficientStorage, r.Code == "QuotaExceeded":
		return blob.ErrFull // whatever the key is
	}
	return fmt.Errorf("%s: %w: %w", key, blob.ErrUnavailable, err)
}

func (s *Store) name(key string) (string, error) {
	if err := blob.CheckKey(key); err != nil {
		return "", err
	}
	return s.prefix + key, nil
}

func (s *Store) info(key string, i minio.ObjectInfo) blob.Info {
	return blob.Info{Key: key, Size: i.Size, Tag: strings.Trim(i.ETag, `"`), Modified: i.LastModified}
}

// Get implements [blob.Store]. A whole object that may be replaced is read at once, and compared
// with its tag where that is its MD5: versitygw 1.8 over a directory can send the bytes of what was
// before with the tag of what came. A service whose tags have been none so far is believed when
// they differ each time.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	if off != 0 || n >= 0 {
		r, info, _, err := s.get(ctx, key, off, n)
		return r, info, err
	}
	for try := 0; ; try++ {
		r, info, header, err := s.get(ctx, key, off, n)
		if err != nil || info.Size > blob.MaxSwap {
			return r, info, err
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return nil, blob.Info{}, err
		}
		sum := md5.Sum(b)
		isSame := hex.EncodeToString(sum[:]) == info.Tag
		if isSame {
			s.tagged.Store(true)
		}
		if isSame || !mayBeMD5(info.Tag, header) || try >= rereads && !s.tagged.Load() {
			return io.NopCloser(bytes.NewReader(b)), info, nil
		}
		if try >= patientRereads {
			return nil, blob.Info{}, fmt.Errorf("%s: %w: its bytes do not have its tag", key, blob.ErrUnavailable)
		}
		if err := pause(ctx, try-rereads); err != nil {
			return nil, blob.Info{}, err
		}
	}
}

// rereads is how often an object is read again whose bytes do not have its tag, and patientRereads where tags are
// known to be MD5 sums. Before the latter there are pauses, half a second in all.
const (
	rereads        = 3
	patientRereads = 10
)

// pause waits longer each time, from the first one on.
func pause(ctx context.Context, n int) error {
	if n < 0 {
		return nil
	}
	select {
	case <-time.After(4 * time.Millisecond << n):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mayBeMD5 reports whether a tag may be the MD5 sum of an object: not of one that came in parts, nor of one that is
// encrypted by keys of a customer (Amazon S3, "Checking object integrity").
func mayBeMD5(tag string, header http.Header) bool {
	return len(tag) == 2*md5.Size && header.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == "" &&
		!strings.HasPrefix(header.Get("X-Amz-Server-Side-Encryption"), "aws:kms")
}

func (s *Store) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, http.Header, error) {
	name, err := s.name(key)
	if err != nil {
		return nil, blob.Info{}, nil, err
	}
	if off < 0 {
		return nil, blob.Info{}, nil, fmt.Errorf("%s: no byte %d", key, off)
	}
	if n == 0 {
		info, err := s.Head(ctx, key)
		if err == nil && (off > info.Size || off == info.Size && off > 0) {
			err = fmt.Errorf("%s: no byte %d in %d", key, off, info.Size)
		}
		return io.NopCloser(strings.NewReader("")), info, nil, err
	}
	var opt minio.GetObjectOptions
	switch {
	case n > 0:
		err = opt.SetRange(off, off+n-1)
	case off > 0:
		err = opt.SetRange(off, 0)
	}
	if err != nil {
		return nil, blob.Info{}, nil, err
	}
	body, object, header, err := s.core.GetObject(ctx, s.bucket, name, opt)
	if err != nil {
		return nil, blob.Info{}, nil, failed(key, err, nil)
	}
	info := s.info(key, object)
	length := object.Size
	if r := header.Get("Content-Range"); r != "" {
		var first, last, size int64
		if _, err := fmt.Sscanf(r, "bytes %d-%d/%d", &first, &last, &size); err != nil || first != off {
			body.Close()
			return nil, blob.Info{}, nil, fmt.Errorf("%s: %w: its range is %q", key, blob.ErrUnavailable, r)
		}
		info.Size, length = size, last-first+1
	} else if off > 0 {
		body.Close()
		return nil, blob.Info{}, nil, fmt.Errorf("%s: %w: it sends no ranges", key, blob.ErrUnavailable)
	}
	return &reading{body, key, length}, info, header, nil
}

// reading is an answer in the reading. One that ends early is an error.
type reading struct {
	io.ReadCloser
	key  string
	left int64
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.left -= int64(n)
	switch {
	case err == io.EOF && r.left > 0:
		return n, fmt.Errorf("%s: %w: %w", r.key, blob.ErrUnavailable, io.ErrUnexpectedEOF)
	case err != nil && err != io.EOF:
		return n, failed(r.key, err, nil)
	}
	return n, err
}

// Head implements [blob.Store].
func (s *Store) Head(ctx context.Context, key string) (blob.Info, error) {
	name, err := s.name(key)
	if err != nil {
		return blob.Info{}, err
	}
	object, err := s.core.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	if err != nil {
		return blob.Info{}, failed(key, err, nil)
	}
	return s.info(key, object), nil
}

// PutIfAbsent implements [blob.Store].
func (s *Store) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	opt := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	opt.SetMatchETagExcept("*")
	return s.put(ctx, key, r, size, opt, blob.ErrExist)
}

// PutIfMatch implements [blob.Store].
func (s *Store) PutIfMatch(ctx context.Context, key, tag string, data []byte) (blob.Info, error) {
	if len(data) > blob.MaxSwap {
		return blob.Info{}, fmt.Errorf("%s: %d bytes are more than %d", key, len(data), blob.MaxSwap)
	}
	return s.replace(ctx, key, tag, bytes.NewReader(data), int64(len(data)), "application/json")
}

// ReplaceIfMatch implements [blob.Replacer].
func (s *Store) ReplaceIfMatch(ctx context.Context, key, tag string, r io.Reader, size int64) (blob.Info, error) {
	return s.replace(ctx, key, tag, r, size, "application/octet-stream")
}

func (s *Store) replace(ctx context.Context, key, tag string, r io.Reader, size int64, kind string) (blob.Info, error) {
	opt := minio.PutObjectOptions{ContentType: kind}
	opt.SetMatchETag(tag)
	h := fnv.New32a()
	h.Write([]byte(key))
	lock := &s.swaps[h.Sum32()%uint32(len(s.swaps))]
	lock.Lock()
	defer lock.Unlock()
	return s.put(ctx, key, r, size, opt, blob.ErrChanged)
}

func (s *Store) put(ctx context.Context, key string, r io.Reader, size int64, opt minio.PutObjectOptions, conflict error) (blob.Info, error) {
	name, err := s.name(key)
	if err != nil {
		return blob.Info{}, err
	}
	// In parts, the client library leaves the condition out. One request takes up to 5 GiB.
	opt.DisableMultipart = true
	exact := &exactly{r: r, left: size}
	var body io.Reader = exact
	if b, ok := r.(*bytes.Reader); ok && int64(b.Len()) == size {
		body = b // it can be sent again
	}
	up, err := s.core.Client.PutObject(ctx, s.bucket, name, body, size, opt)
	if exact.err != nil {
		return blob.Info{}, fmt.Errorf("%s: %w", key, exact.err)
	}
	if err = failed(key, err, conflict); err != nil {
		return blob.Info{}, s.whyRefused(ctx, key, err, conflict)
	}
	return blob.Info{Key: key, Size: size, Tag: strings.Trim(up.ETag, `"`), Modified: up.LastModified}, nil
}

// whyRefused returns what a failure to create an object means. A service may refuse it and end the
// connection while the object is still sent, so that its answer is lost.
func (s *Store) whyRefused(ctx context.Context, key string, err, conflict error) error {
	if !errors.Is(conflict, blob.ErrExist) || !errors.Is(err, blob.ErrUnavailable) {
		return err
	}
	if _, headErr := s.Head(ctx, key); headErr == nil {
		return fmt.Errorf("%s: %w", key, blob.ErrExist)
	}
	return err
}

// exactly is a reader that has to have so many bytes. With the last one it looks for more, so that
// the request fails and nothing is stored.
type exactly struct {
	r    io.Reader
	left int64
	err  error
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left+1)])
	e.left -= int64(n)
	switch {
	case e.left < 0:
		e.err = errors.New("more bytes than were announced")
	case err == io.EOF && e.left > 0:
		e.err = io.ErrUnexpectedEOF
	case err == nil && e.left == 0:
		var more [1]byte
		if n, _ := io.ReadFull(e.r, more[:]); n > 0 {
			e.err = errors.New("more bytes than were announced")
		}
	}
	if e.err != nil {
		return 0, e.err
	}
	return n, err
}

// List implements [blob.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		opt := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
		for object := range s.core.Client.ListObjects(ctx, s.bucket, opt) {
			if object.Err != nil {
				yield(blob.Info{}, failed(prefix, object.Err, nil))
				return
			}
			if !yield(s.info(strings.TrimPrefix(object.Key, s.prefix), object), nil) {
				return
			}
		}
	}
}

// Delete implements [blob.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	name, err := s.name(key)
	if err != nil {
		return err
	}
	err = failed(key, s.core.Client.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}), nil)
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}
