package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// exitHelp explains the exit statuses at the end of the root command's help.
const exitHelp = `Exit status:
  0  success                         5  already exists, or in the wrong state
  1  internal error                  6  no capacity: no worker can fill the order
  2  invalid usage or request        7  unavailable: nothing happened, try again
  3  not found                       8  timeout: outcome unknown
  4  not allowed                   130  interrupted
  "machine exec" exits with the status of its command: 127 if the program does
  not exist, 126 if it cannot be executed. "task run" exits with the status of
  its task, "machine run --attach" with that of the machine's program.
`

// ExitCode returns the exit status for a command that returned err.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[ExitStatus](err); ok {
		return int(s)
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.status
	}
	return bourse.CodeOf(err).ExitStatus()
}

// ExitStatus is an error that makes the command exit with this status, for example that of a
// remote program. No message is printed, because the command or the remote program has already
// printed its own output.
type ExitStatus int

// Error implements error.
func (r ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(r)) }

// statusError overrides the exit status that the code of an error implies.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// WithExitStatus returns err with the given exit status. It returns nil if err is nil.
func WithExitStatus(err error, status int) error {
	if err == nil {
		return nil
	}
	return &statusError{err, status}
}

// errorWithHints adds hints for the user to an error.
type errorWithHints struct {
	err         error
	hints       []string
	afterResult bool // err follows a JSON result; see AfterResult
}

func (h *errorWithHints) Error() string { return h.err.Error() }

func (h *errorWithHints) Unwrap() error { return h.err }

// Hints returns the hints that were added to err, or nil.
func Hints(err error) []string {
	if h, ok := errors.AsType[*errorWithHints](err); ok {
		return h.hints
	}
	return nil
}

// Hint adds hints to err. Each line is a command or flag to try. Hint returns nil if err is nil.
func Hint(err error, lines ...string) error {
	if err == nil {
		return nil
	}
	return &errorWithHints{err, lines, isAfterResult(err)}
}

// AfterResult marks err as an error that follows a JSON result. Because standard output
// already contains JSON, the error is printed as text on standard error even if --json is
// set. AfterResult returns nil if err is nil.
func AfterResult(err error) error {
	if err == nil {
		return nil
	}
	return &errorWithHints{err, Hints(err), true}
}

func isAfterResult(err error) bool {
	h, ok := errors.AsType[*errorWithHints](err)
	return ok && h.afterResult
}

// printError prints an error and its hints to standard error. It escapes control
// characters, because the error may quote text from a server. With --json, it prints the
// API's error object to standard output instead.
func (s *Shell) printError(err error) {
	if s.JSON && !isAfterResult(err) {
		_ = s.PrintLine(errorBody(err)) // if standard output is closed, there is nobody to report the failure to
		return
	}
	var b strings.Builder
	width, _ := s.Err.Size()
	for i, line := range s.errorLines(err) {
		lead := "       "
		if i == 0 {
			lead = "error: "
		}
		for _, part := range Wrap(lead+Clean(line), width, len(lead)) {
			b.WriteString(part + "\n")
		}
	}
	for i, h := range s.hintsOf(err) {
		lead := "       "
		if i == 0 {
			lead = "  try: "
		}
		fmt.Fprintf(&b, "%s%s\n", lead, Clean(s.WithProgramName(h)))
	}
	fmt.Fprint(s.Err, b.String())
}

// errorBody converts err to an API error object.
func errorBody(err error) machinesapi.ErrorBody {
	body := machinesapi.ErrorBody{Code: bourse.CodeOf(err), Error: strings.Join(messages(err), "\n"), Status: machinesapi.StatusUnknown}
	if body.Code == bourse.CodeInsufficient {
		body.Status = machinesapi.StatusInsufficientCapacity
	}
	if reply, ok := errors.AsType[*machinesapi.ReplyError](err); ok {
		body.OrderID, body.Refusals, body.RequestID = reply.OrderID, reply.Refusals, reply.RequestID
		if reply.ErrorStatus != "" {
			body.Status = reply.ErrorStatus
		}
	}
	return body
}

// errorLines returns the lines that are printed for err.
func (s *Shell) errorLines(err error) []string {
	if _, replied := errors.AsType[*machinesapi.ReplyError](err); replied {
		switch code := bourse.CodeOf(err); {
		case code == bourse.CodeUnauthorized && !s.hasToken():
			return []string{"the API requires a token"}
		case code == bourse.CodeUnauthorized && strings.HasPrefix(bourse.MessageOf(err), machinesapi.UnauthorizedText+": "):
			return []string{strings.TrimPrefix(bourse.MessageOf(err), machinesapi.UnauthorizedText+": ")}
		case code == bourse.CodeUnauthorized:
			return []string{"the broker does not accept this token"}
		case code == bourse.CodeForbidden && bourse.MessageOf(err) == machinesapi.ForbiddenText:
			return []string{"the token does not permit access to this app"}
		}
	}
	return messages(err)
}

// messages returns the lines of err's message; joined errors contribute their lines in
// order.
func messages(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, messages(e)...)
		}
		return out
	}
	return strings.Split(strings.TrimSpace(MessageOf(err)), "\n")
}

// MessageOf returns err's message for the user. It omits the cause, unless err is an internal
// error, because an internal error contains no other information.
func MessageOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // only the outermost error counts
	case *errorWithHints:
		return MessageOf(e.err)
	case *bourse.Error:
		if e.Code != bourse.CodeInternal {
			return e.Message
		}
	}
	return err.Error()
}

// refusalHints maps workers' reasons for refusing an order to commands that may help. A reason is
// missing if the refusal's text is sufficient, or if the remedy depends on facts that the command
// does not know. WORKER stands for the refusing worker.
var refusalHints = []struct {
	reason   bourse.RefusalReason
	resource string // "" matches any resource
	command  string
}{
	{bourse.RefusedLabel, "", "bourse worker show WORKER"},
	{bourse.RefusedCordoned, "", "bourse worker uncordon WORKER"},
	{bourse.RefusedImage, bourse.ImagePull, "bourse serve worker --pull"},
	{bourse.RefusedImage, bourse.ImageHost, "bourse serve worker --allow-host, or allow-host = true below [worker] in bourse.toml"},
	{bourse.RefusedReservation, "", "bourse reservation create"},
	{bourse.RefusedNoAnswer, "", "bourse worker list"},
}

// AfterRefusals returns commands that may help after workers refused an order, at most one for each
// entry of refusalHints.
func AfterRefusals(refusals []bourse.Refusal) []string {
	var out []string
	for _, h := range refusalHints {
		i := slices.IndexFunc(refusals, func(r bourse.Refusal) bool {
			return r.Reason == h.reason && (h.resource == "" || r.Resource == h.resource)
		})
		if i >= 0 {
			out = append(out, strings.ReplaceAll(h.command, "WORKER", cmp.Or(string(refusals[i].Worker), "WORKER")))
		}
	}
	return out
}

// hintsOf returns the hints for err. If its command added none, they are derived from the
// cause, the code, or the workers' refusals.
func (s *Shell) hintsOf(err error) []string {
	if hints := Hints(err); hints != nil {
		return hints
	}
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	if !replied {
		return s.hintOfCause(err)
	}
	switch code := bourse.CodeOf(err); {
	case code == bourse.CodeUnauthorized && s.target().fromContext:
		return []string{"bourse login " + s.baseURL() + ", with another token", "another --context"}
	case code == bourse.CodeUnauthorized && !s.hasToken():
		return []string{"bourse login " + s.baseURL(), "--token TOKEN or BOURSE_API_TOKEN"}
	case code == bourse.CodeUnauthorized:
		return []string{"another --token or BOURSE_API_TOKEN; another --api or BOURSE_API (now " + s.baseURL() + ")"}
	case code == bourse.CodeForbidden && strings.HasPrefix(bourse.MessageOf(err), machinesapi.ForbiddenText):
		return []string{"another token: --token, bourse login or BOURSE_API_TOKEN"}
	}
	hints := AfterRefusals(reply.Refusals)
	if reply.OrderID != "" {
		hints = append(hints, "bourse order show "+string(reply.OrderID))
	}
	return hints
}

// hintOfCause returns hints for an error that is not a reply from the API.
func (s *Shell) hintOfCause(err error) []string {
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	lookup, unresolved := errors.AsType[*net.DNSError](err)
	_, ofAPI := errors.AsType[*machinesapi.NoReplyError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case !ofAPI: // the error comes from a server that --api does not select, such as a registry
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return []string{
			"bourse dev, to start a cluster on this host",
			s.anotherAPI(),
		}
	case unresolved && lookup.IsNotFound, misnamed:
		return []string{s.anotherAPI()}
	case errors.Is(err, http.ErrSchemeMismatch):
		return []string{"--api " + otherScheme(s.baseURL())}
	case untrusted:
		return []string{"--ca FILE or BOURSE_CA, with the CA that issued the API's certificate"}
	}
	return nil
}

// anotherAPI returns the hint to try another API.
func (s *Shell) anotherAPI() string {
	return "another --api, --context or BOURSE_API (now " + s.baseURL() + ")"
}

// hasToken reports whether requests to the API include a token.
func (s *Shell) hasToken() bool {
	token, _ := s.credential()
	return token != ""
}

// otherScheme returns an API's URL with http instead of https, or vice versa.
func otherScheme(api string) string {
	if rest, ok := strings.CutPrefix(api, "https://"); ok {
		return "http://" + rest
	}
	_, rest, ok := strings.Cut(api, "://")
	if !ok {
		rest = api
	}
	return "https://" + rest
}

// Interrupted is the outcome of a command that the user interrupted. It is printed as a
// single line, instead of an error.
type Interrupted string

// Error implements error.
func (i Interrupted) Error() string { return string(i) }

// interrupted reports whether err was caused only by a signal that stopped the command.
func interrupted(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[Interrupted](err); ok {
		return true
	}
	return ctx.Err() != nil && (bourse.CodeOf(err) == bourse.CodeCanceled || errors.Is(err, context.Cause(ctx)))
}

// endInterrupted prints the outcome of an interrupted command, if it is known, and returns
// the exit status.
func (s *Shell) endInterrupted(err error) int {
	if line, ok := errors.AsType[Interrupted](err); ok {
		s.Note(Clean(string(line)))
	}
	return bourse.CodeCanceled.ExitStatus()
}
