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

// The functions in this file return messages about failed connections to a registry, for the user whose order named the
// image. The libraries' own errors are only logged, because they may contain addresses in the worker's network and URLs
// with signatures.

// unreachableText explains why a registry, or another host that the registry pointed this client to, could not be
// reached. If a worker flag may solve the problem, the text mentions the flag. If err has another cause,
// unreachableText returns "".
func unreachableText(err error, registry string) string {
	host := hostOf(err, registry)
	if why := untrusted(err, host); why != "" {
		return why
	}
	prefix := host + " cannot be reached: "
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return prefix + "no such host"
		}
		return prefix + "resolving its name failed"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return prefix + "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return prefix + "no route to host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return host + " closed the connection"
	}
	if e, ok := errors.AsType[net.Error](err); ok {
		if e.Timeout() {
			return prefix + "no answer in time"
		}
		return prefix + "the connection failed"
	}
	return ""
}

// untrusted explains why a TLS connection to a host failed. It returns "" for other errors.
func untrusted(err error, host string) string {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return host + " does not use TLS: to allow that, start the worker with --registry-http " + host
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return host + " does not speak TLS"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate of " + host + " is signed by an unknown authority: to trust it, start the worker with --registry-ca " + host + "=FILE"
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

// hostOf returns the host of the failed request. After a redirect, this is not the registry's own
// host.
func hostOf(err error, registry string) string {
	e, ok := errors.AsType[*url.Error](err)
	if !ok {
		return registry
	}
	u, parseErr := url.Parse(e.URL)
	if parseErr != nil || u.Host == "" {
		return registry
	}
	return sanitize(u.Host, 100)
}

// statusText returns a response's status, and the reason that the registry gave.
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
	if said := sanitize(body.Errors[0].Message, 200); said != "" {
		text += ": " + said
	}
	return text
}

// sanitize converts untrusted text to a single line of limited length.
func sanitize(text string, most int) string {
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

// errPrivate returns the error for a registry at a private address on a worker that does not allow such addresses.
func errPrivate() error {
	return bourse.Errorf(bourse.CodeInvalid, "its registry has a private address: to allow that, start the worker with --registry-private")
}
