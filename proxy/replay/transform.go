package replay

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/bourse-dev/bourse"
)

// Transform specifies how a request is changed before it is replayed.
type Transform struct {
	Path          string      `json:"path"` // new path and query; "": unchanged
	DeleteHeaders []string    `json:"delete_headers"`
	SetHeaders    []SetHeader `json:"set_headers"` // headers to set; they replace existing headers with the same names
}

// SetHeader specifies a header to set in a request.
type SetHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (t *Transform) empty() bool {
	return t.Path == "" && len(t.DeleteHeaders) == 0 && len(t.SetHeaders) == 0
}

// connectionHeaders contains headers that control message framing and connections. Only the proxy may set them.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// validValue reports whether s is a valid header value. A valid value does not contain control characters that a
// program could mistake for the end of the header.
func validValue(s string) bool { return httpguts.ValidHeaderFieldValue(s) }

func (t *Transform) validate() error {
	if len(t.DeleteHeaders)+len(t.SetHeaders) > maxEdits {
		return invalidf("transform sets and deletes %d headers; the maximum is %d", len(t.DeleteHeaders)+len(t.SetHeaders), maxEdits)
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
			return invalidf("transform.set_headers: the value of %s is too long or contains a control character", bourse.Quoted(h.Name))
		}
	}
	return nil
}

// editable returns an error if a machine may not change the header with the given name.
func editable(name string) error {
	if len(name) > maxToken || !httpguts.ValidHeaderFieldName(name) {
		return invalidf("transform: %s is not a header name", bourse.Quoted(name))
	}
	if slices.Contains(connectionHeaders, http.CanonicalHeaderKey(name)) || isReplayHeader(name) {
		return invalidf("transform: header %s cannot be changed", bourse.Quoted(name))
	}
	return nil
}

func parsePath(path string) (*url.URL, error) {
	if len(path) > maxPath {
		return nil, invalidf("transform.path is %d bytes long; the maximum is %d", len(path), maxPath)
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || path[0] != '/' || strings.ContainsAny(path, " #") {
		return nil, invalidf("transform.path %s is not a path that begins with \"/\", with an optional query", bourse.Quoted(path))
	}
	return u, nil
}

// Apply changes the URL and headers of a request in place.
func (t *Transform) Apply(u *url.URL, h http.Header) {
	if t.Path != "" {
		if to, err := parsePath(t.Path); err == nil { // cannot fail, because the path was validated
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
