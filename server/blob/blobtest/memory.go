package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/server/blob"
)

// Memory is a blob.Store in memory. The zero value is empty.
type Memory struct {
	mu      sync.Mutex
	objects map[string]kept
	tags    int
}

type kept struct {
	b    []byte
	info blob.Info
}

// String returns "memory".
func (m *Memory) String() string { return "memory" }

// Get implements blob.Store.
func (m *Memory) Get(_ context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	k, err := m.find(key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	size := int64(len(k.b))
	if off < 0 || off > size || off == size && off > 0 {
		return nil, blob.Info{}, fmt.Errorf("%s: no byte %d in %d", key, off, size)
	}
	if n < 0 || n > size-off {
		n = size - off
	}
	return io.NopCloser(bytes.NewReader(k.b[off : off+n])), k.info, nil
}

func (m *Memory) find(key string) (kept, error) {
	if err := blob.CheckKey(key); err != nil {
		return kept{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.objects[key]
	if !ok {
		return k, fmt.Errorf("%s: %w", key, blob.ErrNotExist)
	}
	return k, nil
}

// Head implements blob.Store.
func (m *Memory) Head(_ context.Context, key string) (blob.Info, error) {
	k, err := m.find(key)
	return k.info, err
}

// PutIfAbsent implements blob.Store.
func (m *Memory) PutIfAbsent(_ context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != size {
		err = fmt.Errorf("%s: %d bytes, where %d were announced", key, len(b), size)
	}
	if err != nil {
		return blob.Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; ok {
		return blob.Info{}, fmt.Errorf("%s: %w", key, blob.ErrExist)
	}
	return m.put(key, b), nil
}

// put is called under the lock.
func (m *Memory) put(key string, b []byte) blob.Info {
	if m.objects == nil {
		m.objects = map[string]kept{}
	}
	m.tags++
	k := kept{b, blob.Info{Key: key, Size: int64(len(b)), Tag: fmt.Sprint(m.tags), Modified: time.Now()}}
	m.objects[key] = k
	return k.info
}

// PutIfMatch implements blob.Store.
func (m *Memory) PutIfMatch(_ context.Context, key, tag string, b []byte) (blob.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[key].info.Tag != tag || tag == "" {
		return blob.Info{}, fmt.Errorf("%s: %w", key, blob.ErrChanged)
	}
	return m.put(key, bytes.Clone(b)), nil
}

// ReplaceIfMatch implements blob.Replacer.
func (m *Memory) ReplaceIfMatch(ctx context.Context, key, tag string, r io.Reader, _ int64) (blob.Info, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return blob.Info{}, err
	}
	return m.PutIfMatch(ctx, key, tag, b)
}

// List implements blob.Store.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		m.mu.Lock()
		keys := slices.Sorted(maps.Keys(m.objects))
		m.mu.Unlock()
		for _, key := range keys {
			k, err := m.find(key)
			if err != nil || !strings.HasPrefix(key, prefix) {
				continue
			}
			if !yield(k.info, ctx.Err()) || ctx.Err() != nil {
				return
			}
		}
	}
}

// Delete implements blob.Store.
func (m *Memory) Delete(_ context.Context, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
