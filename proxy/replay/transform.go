package replay

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/bourse-dev/bourse"
)

// Transform is how a request is changed before it is replayed.
type Transform struct {
	Path          string      `json:"path"` // with its query; empty: as it is
	DeleteHeaders []string    `json:"delete_headers"`
	SetHeaders    []SetHeader `json:"set_headers"` // instead of others of the name
}

// SetHeader is a header that a request gets.
type SetHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (t *Transform) empty() bool {
	return t.Path == "" && len(t.DeleteHeaders) == 0 && len(t.SetHeaders) == 0
}

// framing are the headers that say how a message is cut, and where a connection
// ends: they are the proxy's.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// validValue reports whether a header can have the value: one that a program could
// take for the end of the header, or of the value's field, is none.
func validValue(s string) bool { return httpguts.ValidHeaderFieldValue(s) }

func (t *Transform) validate() error {
	if len(t.DeleteHeaders)+len(t.SetHeaders) > maxEdits {
		return invalidf("transform sets and deletes %d headers: at most %d", len(t.DeleteHeaders)+len(t.SetHeaders), maxEdits)
	}
	if t.Path != "" {
		if _, err := parsePath(t.Path); err != nil {
			return err
		}
	}
	for _, name := range t.DeleteHeaders {
		if err := editable(name); err != nil {
			return err
		}
	}
	for _, h := range t.SetHeaders {
		if err := editable(h.Name); err != nil {
			return err
		}
		if len(h.Value) > maxValue || !validValue(h.Value) {
			return invalidf("transform.set_headers: the value of %s is too long, or has a control character", bourse.Quoted(h.Name))
		}
	}
	return nil
}

// editable returns an error for a header that is not a machine's to change.
func editable(name string) error {
	if len(name) > maxToken || !httpguts.ValidHeaderFieldName(name) {
		return invalidf("transform: %s is no name of a header", bourse.Quoted(name))
	}
	if slices.Contains(connectionHeaders, http.CanonicalHeaderKey(name)) || isReplayHeader(name) {
		return invalidf("transform: header %s is the proxy's own", bourse.Quoted(name))
	}
	return nil
}

func parsePath(path string) (*url.URL, error) {
	if len(path) > maxPath {
		return nil, invalidf("transform.path of %d bytes: at most %d", len(path), maxPath)
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || path[0] != '/' || strings.ContainsAny(path, " #") {
		return nil, invalidf("transform.path %s: want a path that begins with /, and its query", bourse.Quoted(path))
	}
	return u, nil
}

// Apply changes a request's URL and headers, which are the caller's own.
func (t *Transform) Apply(u *url.URL, h http.Header) {
	if t.Path != "" {
		if to, err := parsePath(t.Path); err == nil { // as when it was read
			u.Path, u.RawPath, u.RawQuery, u.ForceQuery = to.Path, to.RawPath, to.RawQuery, to.ForceQuery
		}
	}
	for _, name := range t.DeleteHeaders {
		h.Del(name)
	}
	for _, e := range t.SetHeaders {
		h.Set(e.Name, e.Value)
	}
}
