package debuginfod

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"hallmark/buildid"
)

// Metadata is what a server knows of a file: an entry of the results of /metadata (debuginfod(8), "WEBAPI").
type Metadata struct {
	Type    string     `json:"type"` // "executable" or "debuginfo"
	BuildID buildid.ID `json:"buildid"`
	File    string     `json:"file"`
	Archive string     `json:"archive,omitempty"`
}

// Bounds of an answer with metadata.
const (
	maxMetadata  = 16 << 20         // bytes
	metadataTime = 10 * time.Second // for all of it
)

// Metadata returns which files the servers know by a key of /metadata, "file", "glob" or "buildid", and a value. It is complete
// where each server answered, and said so. forwarded is as for FetchFor. Warn is called as for files.
func (c *Client) Metadata(ctx context.Context, key, value, forwarded string) (found []Metadata, complete bool) {
	c.once.Do(c.init)
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, forwardedKey{}, forwarded), metadataTime)
	defer cancel()
	type answer struct {
		Results  []Metadata `json:"results"`
		Complete bool       `json:"complete"`
	}
	answers := make([]answer, len(c.servers))
	var all sync.WaitGroup
	for i, s := range c.servers {
		all.Go(func() {
			err := s.down(time.Now())
			if err == nil {
				err = c.getJSON(ctx, s.url+"/metadata?"+url.Values{"key": {key}, "value": {value}}.Encode(), &answers[i])
			}
			if err != nil {
				answers[i] = answer{}
				if ctx.Err() == nil {
					_ = c.failure(s, err) // the answer is not complete
				}
			}
		})
	}
	all.Wait()
	complete = true
	for _, a := range answers {
		complete = complete && a.Complete
		for _, m := range a.Results {
			if m.BuildID.Kind() == buildid.GNU && (m.Type == string(DebugInfo) || m.Type == string(Executable)) {
				found = append(found, m)
			}
		}
	}
	return found, complete
}

// getJSON reads an answer.
func (c *Client) getJSON(ctx context.Context, url string, v any) error {
	r, err := c.request(ctx, url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if err := status(r); err != nil {
		return err
	}
	body := io.Reader(r.Body)
	if isPacked(r) {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	b, err := io.ReadAll(io.LimitReader(body, maxMetadata+1))
	if err == nil && len(b) > maxMetadata {
		err = errors.New("it sends too much")
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("its metadata: %w", err)
	}
	return nil
}
