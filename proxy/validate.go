package proxy

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/bourse-dev/bourse"
)

// validate returns an error for a request that net/http's transport could not send to any machine. It is called
// before a machine is chosen or started. The transport can write every request that passes this check, over both
// HTTP/1.1 and HTTP/2. Therefore, if writing a request fails, the request itself is never the cause.
//
// net/http's server checks most of this for HTTP/1.1. For HTTP/2, it checks neither the method nor
// the announced trailers, and accepts spaces in the query. Errors: invalid.
func validate(r *http.Request) error {
	if !httpguts.ValidHeaderFieldName(r.Method) { // method names, like header names, are tokens (RFC 9110, sections 5.1 and 9.1)
		return bourse.Errorf(bourse.CodeInvalid, "the request's method is not a token")
	}
	if r.Method != http.MethodConnect {
		if err := validateTarget(r); err != nil {
			return err
		}
	}
	for _, fields := range []http.Header{r.Header, r.Trailer} {
		for name, values := range fields {
			if !httpguts.ValidHeaderFieldName(name) {
				return bourse.Errorf(bourse.CodeInvalid, "the request has a header whose name is not a token")
			}
			for _, v := range values {
				if !httpguts.ValidHeaderFieldValue(v) {
					return bourse.Errorf(bourse.CodeInvalid, "the request's header %s contains a control character", bourse.Quoted(name))
				}
			}
		}
	}
	for _, protocol := range r.Header["Upgrade"] {
		if strings.ContainsFunc(protocol, func(c rune) bool { return c < ' ' || c > '~' }) {
			return bourse.Errorf(bourse.CodeInvalid, "the request's Upgrade header is not ASCII")
		}
	}
	return nil
}

// validateTarget returns an error unless a request's target is a path with an optional query. "OPTIONS *" never gets
// here, because net/http answers it.
func validateTarget(r *http.Request) error {
	if r.URL.Opaque != "" { // such as "GET http:web.example", which servers interpret differently
		return bourse.Errorf(bourse.CodeInvalid, "the request's target is neither a path nor an absolute URL")
	}
	uri := r.URL.RequestURI()
	if !strings.HasPrefix(uri, "/") {
		return bourse.Errorf(bourse.CodeInvalid, "the request's path does not begin with /")
	}
	// In the request line of HTTP/1.1, a space would end the target.
	if strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return bourse.Errorf(bourse.CodeInvalid, "the request's target contains a space or a control character")
	}
	return nil
}

// hostOf returns the host name to which a request is addressed, in lower case, without the port and without a
// trailing dot. Errors: invalid.
func hostOf(r *http.Request) (string, error) {
	host := r.Host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return "", bourse.Errorf(bourse.CodeInvalid, "the request's host has a port that is not a number")
		}
		host = h
	} else if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case host == "":
		return "", bourse.Errorf(bourse.CodeInvalid, "the request does not specify a host")
	case len(host) > 253 || strings.ContainsFunc(r.Host, invalidHostRune) || !httpguts.ValidHostHeader(r.Host):
		return "", bourse.Errorf(bourse.CodeInvalid, "the request's host is not a host name")
	}
	return host, nil
}

// invalidHostRune reports whether a character cannot occur in a host name, an address or a port.
func invalidHostRune(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("/\\@?#%\"", c) }
