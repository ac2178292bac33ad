package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// Dial connects to a port of the checked machine.
type Dial func(ctx context.Context, port uint16) (net.Conn, error)

// Limits on the number of bytes that are read from a reply's headers and body. They are necessary because machines
// are not trusted.
const (
	maxHeaders = 16 << 10
	maxBody    = 256
)

// Probe executes a check once. It reports whether the check passed, and describes the result in at most
// [MaxCheckOutput] bytes of printable text. It takes no longer than the check's timeout and does not follow
// redirects. If the check's Port is 0, the caller must first set it to the machine's $PORT.
func (c *Check) Probe(ctx context.Context, dial Dial) (passed bool, output string) {
	if c.Port == 0 {
		return false, "the machine has no $PORT: the check needs a port"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	var err error
	if c.Type == CheckTCP {
		output, err = c.connect(ctx, dial)
	} else {
		output, err = c.ask(ctx, dial)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return false, printable(c.failure(err))
	}
	return true, printable(output)
}

func (c *Check) connect(ctx context.Context, dial Dial) (string, error) {
	conn, err := dial(ctx, uint16(c.Port)) //nolint:gosec // Checks has verified the range
	if err != nil {
		return "", err
	}
	return "connected to " + c.describePort(), conn.Close()
}

// describePort describes the probed port. If the config names a different port, describePort also explains why that
// port was not probed.
func (c *Check) describePort() string {
	if !c.usesOtherPort() {
		return "port " + strconv.Itoa(c.Port)
	}
	return fmt.Sprintf("port %d, the machine's $PORT, because port %d was not available on its host", c.Port, c.ConfiguredPort)
}

// usesOtherPort reports whether the probed port differs from the one in the config.
func (c *Check) usesOtherPort() bool { return c.ConfiguredPort != 0 && c.ConfiguredPort != c.Port }

// errReply is the error for a reply whose status does not indicate success.
type errReply struct{ text string }

func (e errReply) Error() string { return e.text }

func (c *Check) ask(ctx context.Context, dial Dial) (string, error) {
	req, err := c.newRequest(ctx)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, uint16(c.Port)) //nolint:gosec // Checks has verified the range
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: c.TLSSkipVerify, ServerName: c.TLSServerName, MinVersion: tls.VersionTLS12}, //nolint:gosec // as configured
	}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(req) // RoundTrip, unlike a Client, does not follow redirects or store cookies
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text := req.Method + " " + c.Path + ": " + reply.Status
	if body, _ := io.ReadAll(io.LimitReader(reply.Body, maxBody)); len(body) > 0 {
		text += ": " + string(body)
	}
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		return "", errReply{text}
	}
	return text, nil
}

func (c *Check) newRequest(ctx context.Context) (*http.Request, error) {
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, scheme+"://"+net.JoinHostPort("localhost", strconv.Itoa(c.Port))+c.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "bourse-check")
	for _, h := range c.Headers {
		if strings.EqualFold(h.Name, "Host") && len(h.Values) > 0 {
			req.Host = h.Values[0]
			continue
		}
		req.Header[http.CanonicalHeaderKey(h.Name)] = h.Values
	}
	return req, nil
}

// failure describes why a probe failed, without revealing the host's addresses. The text begins with the port if the
// connection failed or the port differs from the one in the config.
func (c *Check) failure(err error) string {
	text, port := err.Error(), c.usesOtherPort()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		text, port = op.Op+": "+op.Err.Error(), true
	} else if coded, ok := errors.AsType[*bourse.Error](err); ok {
		text = coded.Message
	}
	if port {
		return c.describePort() + ": " + text
	}
	return text
}

// printable returns text without control characters, truncated to MaxCheckOutput bytes.
func printable(text string) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError || isControl(r) && r != '\n' && r != '\t' || r >= 0x80 && r < 0xa0:
			return -1
		case r == '\n' || r == '\t':
			return ' '
		}
		return r
	}, text))
	for len(text) > MaxCheckOutput {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
