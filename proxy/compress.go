package proxy

import (
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// minCompressed is the minimum length, in bytes, of a body that is worth compressing.
const minCompressed = 860

// compressible contains the media types, in addition to text/*, that are worth compressing.
var compressible = []string{
	"application/json", "application/javascript", "application/xml", "application/xhtml+xml", "application/rss+xml", "application/atom+xml",
	"application/manifest+json", "application/ld+json", "application/problem+json", "application/wasm", "application/x-ndjson", "image/svg+xml",
}

// compress compresses a reply's body if the client accepts gzip and the body is worth compressing.
func compress(in *http.Request, resp *http.Response) {
	h := resp.Header
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if !strings.HasPrefix(media, "text/") && !slices.Contains(compressible, media) {
		return
	}
	if !hasToken(h.Values("Vary"), "accept-encoding") {
		h.Add("Vary", "Accept-Encoding")
	}
	switch {
	case in.Method == http.MethodHead, resp.StatusCode < 200, resp.StatusCode == http.StatusNoContent,
		resp.StatusCode == http.StatusNotModified, resp.StatusCode == http.StatusPartialContent,
		h.Get("Content-Encoding") != "", h.Get("Content-Range") != "",
		resp.ContentLength >= 0 && resp.ContentLength < minCompressed,
		hasToken(h.Values("Cache-Control"), "no-transform"), !acceptsGzip(in.Header):
		return
	}
	h.Set("Content-Encoding", "gzip")
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	if tag := h.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		h.Set("Etag", "W/"+tag) // make the tag weak, because compression changes the body's bytes
	}
	resp.Body = &compressed{from: resp.Body, flush: resp.ContentLength < 0}
	resp.ContentLength = -1
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// acceptsGzip reports whether a client accepts gzip, that is, whether it lists gzip with a weight above 0.
func acceptsGzip(h http.Header) bool {
	for _, v := range h.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(v, ",") {
			coding, weight, weighted := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			if !weighted {
				return true
			}
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err == nil && q > 0
		}
	}
	return false
}

var writers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // cannot fail, because the level is valid
	return w
}}

// compressed is a body that is compressed while it is read. If flush is set, each chunk from the machine is passed on
// as soon as it arrives.
type compressed struct {
	from  io.ReadCloser
	flush bool

	w   *gzip.Writer
	buf []byte // data from the machine, not compressed yet
	out []byte // compressed data
	at  int    // read position in out
	err error
}

// Write receives the output of the compressor.
func (c *compressed) Write(p []byte) (int, error) { c.out = append(c.out, p...); return len(p), nil }

// Read implements io.Reader.
func (c *compressed) Read(p []byte) (int, error) {
	if c.w == nil && c.err == nil {
		c.w, _ = writers.Get().(*gzip.Writer)
		c.w.Reset(c)
		c.buf = make([]byte, 8<<10)
	}
	for c.at == len(c.out) && c.err == nil {
		c.out, c.at = c.out[:0], 0
		n, err := c.from.Read(c.buf)
		_, _ = c.w.Write(c.buf[:n]) // cannot fail, because it writes to memory
		switch c.err = err; {
		case err == io.EOF:
			_ = c.w.Close()
		case err == nil && c.flush && n > 0:
			_ = c.w.Flush()
		}
	}
	if c.at == len(c.out) {
		return 0, c.err
	}
	n := copy(p, c.out[c.at:])
	c.at += n
	return n, nil
}

// Close implements io.Closer.
func (c *compressed) Close() error {
	if c.w != nil {
		c.w.Reset(io.Discard)
		writers.Put(c.w)
		c.w = nil
		c.err = errBodyEnded
	}
	return c.from.Close()
}
