package image

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/bourse-dev/bourse"
)

// What went wrong on the way to a registry, for the caller who ordered an image. The errors of the
// libraries are for the log: they have URLs, whose queries may be signatures, and
// addresses of the worker's network.

// unreached says why a registry, or a host that it names, was not reached, with the
// flag of the worker that may help; "" for an error that is about something else.
func unreached(err error, registry string) string {
	host := hostOf(err, registry)
	if why := untrusted(err, host); why != "" {
		return why
	}
	prefix := host + " is not reached: "
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return prefix + "no such host"
		}
		return prefix + "its name cannot be resolved now"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return prefix + "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return prefix + "there is no route to it"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return host + " broke the connection off"
	}
	if e, ok := errors.AsType[net.Error](err); ok {
		if e.Timeout() {
			return prefix + "no answer in time"
		}
		return prefix + "the connection failed"
	}
	return ""
}

// untrusted says why TLS with a host failed; "" if it did not.
func untrusted(err error, host string) string {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return host + " answers without TLS: the worker asks it so with --registry-http " + host
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return host + " does not speak TLS"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate of " + host + " is of an unknown authority: the worker trusts it with --registry-ca " + host + "=FILE"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate of " + host + " is for another host"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return "the certificate of " + host + " has expired, or is not valid yet"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of " + host + " is not valid"
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return host + " refuses the TLS connection: " + strings.TrimPrefix(alert.Error(), "tls: ")
	}
	return ""
}

// hostOf returns the host that a request was sent to, which a registry may have
// named.
func hostOf(err error, registry string) string {
	e, ok := errors.AsType[*url.Error](err)
	if !ok {
		return registry
	}
	u, parseErr := url.Parse(e.URL)
	if parseErr != nil || u.Host == "" {
		return registry
	}
	return plain(u.Host, 100)
}

// statusText returns an answer's status and, in its own words, the reason.
func statusText(e *remoteerrors.ErrUnexpectedStatus) string {
	text := strings.TrimSpace(strconv.Itoa(e.StatusCode) + " " + http.StatusText(e.StatusCode))
	var body struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(e.Body, &body) != nil || len(body.Errors) == 0 {
		return text
	}
	if said := plain(body.Errors[0].Message, 200); said != "" {
		text += ": " + said
	}
	return text
}

// plain makes of a text from elsewhere one line of bounded length.
func plain(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// errPrivate says that a registry is at an address where none is asked.
func errPrivate() error {
	return bourse.Errorf(bourse.CodeInvalid, "its registry is at an address of the worker's own network: the worker asks it there with --registry-private")
}
