package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// printError tells a person what happened and what to try: one "error:" line,
// then the hints. What the error quotes may come from elsewhere, so control
// characters are escaped.
func printError(w io.Writer, err error, where string) {
	var b strings.Builder
	lines := errorLines(err)
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintf(&b, "error: %s\n", clean(line))
			continue
		}
		fmt.Fprintf(&b, "       %s\n", clean(line))
	}
	for i, h := range hintsOf(err, where) {
		lead := "       "
		if i == 0 {
			lead = "  try: "
		}
		fmt.Fprintf(&b, "%s%s\n", lead, h)
	}
	fmt.Fprint(w, b.String())
}

// errorLines gives each of several joined errors its own line.
func errorLines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, errorLines(e)...)
		}
		return out
	}
	return strings.Split(strings.TrimSpace(messageOf(err)), "\n")
}

// messageOf gives the text for a person: the message without the cause that
// is kept for logs, except where the cause is all there is to go by.
func messageOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // only the outermost is looked at
	case *hinted:
		return messageOf(e.err)
	case *bourse.Error:
		if e.Code != bourse.CodeInternal {
			return e.Message
		}
	}
	return err.Error()
}

// isUntrusted tells whether a server showed a certificate of a CA that is not
// trusted here.
func isUntrusted(err error) bool {
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// hintsOf gives the hints that the verb added, or else those that the code
// and the cause suggest. where is the API's address.
func hintsOf(err error, where string) []string {
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.hints
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return []string{
			"is it running? start a cluster with: bourse dev",
			"or name another API with --api or BOURSE_API (now " + where + ")",
		}
	case isUntrusted(err):
		return []string{"name the CA that the API's certificate is of with --ca FILE or BOURSE_CA"}
	case errors.Is(err, syscall.ENOSPC):
		return []string{"make room on the disk, then the same again"}
	case errors.Is(err, os.ErrPermission):
		return []string{"run as a user who may, or choose another --data directory"}
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeUnauthorized:
		return []string{"give a token with --token or BOURSE_API_TOKEN"}
	case bourse.CodeForbidden:
		return []string{"a token of that organisation or app, with --token or BOURSE_API_TOKEN"}
	case bourse.CodeConflict:
		return []string{"look at it again, then repeat: bourse machine status ID"}
	case bourse.CodeInsufficient:
		return []string{"another --region, a smaller --vm-memory or --vm-cpus, or later"}
	case bourse.CodeRateLimited, bourse.CodeUnavailable:
		return []string{"the same again in a moment: nothing happened"}
	case bourse.CodeTimeout:
		return []string{"see what became of it before you repeat: bourse machine list"}
	case bourse.CodeInternal:
		return []string{"the server's log has the cause"}
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeAlreadyExists, bourse.CodeFailedPrecondition, bourse.CodeCanceled:
		return nil
	}
	return nil
}
