package fabric

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/bourse-dev/bourse"
)

// route is a pattern of wire.go, cut once: its method and what is before
// and after the id in its path.
type route struct {
	method        string
	before, after string
	takesID       bool
}

func routeOf(pattern string) route {
	method, path, _ := strings.Cut(pattern, " ")
	before, rest, takesID := strings.Cut(path, "{")
	_, after, _ := strings.Cut(rest, "}")
	return route{method: method, before: before, after: after, takesID: takesID}
}

// url returns the route's path with an id in it, escaped. What a server would
// clean out of a path is CodeInvalid.
func (r route) url(id string) (*url.URL, error) {
	if !r.takesID {
		return &url.URL{Path: r.before}, nil
	}
	if id == "" || id == "." || id == ".." {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s names nothing", bourse.Quoted(id))
	}
	u := &url.URL{Path: r.before + id + r.after}
	if escaped := url.PathEscape(id); escaped != id {
		u.RawPath = r.before + escaped + r.after
	}
	return u, nil
}

// request makes the request for an id, without a body. A Fabric sets its
// context and address.
func (r route) request(id string, query url.Values) (*http.Request, error) {
	u, err := r.url(id)
	if err != nil {
		return nil, err
	}
	if len(query) > 0 {
		u.RawQuery = query.Encode()
	}
	return &http.Request{
		Method: r.method, URL: u, Header: http.Header{}, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}
