package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// printError prints an error and its hints to standard error. Control characters are
// escaped, because the error may quote text from a server. With --json it prints the
// API's error object to standard output instead.
func (s *Shell) printError(err error) {
	if s.JSON && !isBeside(err) {
		_ = s.PrintLine(errorBody(err)) // nobody reads a closed standard output
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
		fmt.Fprintf(&b, "%s%s\n", lead, Clean(s.Typed(h)))
	}
	fmt.Fprint(s.Err, b.String())
}

// errorBody returns err as an error object of the API.
func errorBody(err error) machinesapi.ErrorBody {
	body := machinesapi.ErrorBody{Code: bourse.CodeOf(err), Error: strings.Join(messages(err), "\n"), Status: machinesapi.StatusUnknown}
	if body.Code == bourse.CodeInsufficient {
		body.Status = machinesapi.StatusInsufficientCapacity
	}
	if reply, ok := errors.AsType[*machinesapi.ReplyError](err); ok {
		body.OrderID, body.Refusals, body.RequestID = reply.OrderID, reply.Refusals, reply.RequestID
		if reply.Word != "" {
			body.Status = reply.Word
		}
	}
	return body
}

// errorLines returns the lines that are printed for err.
func (s *Shell) errorLines(err error) []string {
	if _, replied := errors.AsType[*machinesapi.ReplyError](err); replied {
		switch code := bourse.CodeOf(err); {
		case code == bourse.CodeUnauthorized && s.credential() == "":
			return []string{"the API requires a token"}
		case code == bourse.CodeUnauthorized && strings.HasPrefix(bourse.MessageOf(err), machinesapi.UnauthorizedText+": "):
			return []string{strings.TrimPrefix(bourse.MessageOf(err), machinesapi.UnauthorizedText+": ")}
		case code == bourse.CodeUnauthorized:
			return []string{"the broker does not know this token"}
		case code == bourse.CodeForbidden && bourse.MessageOf(err) == machinesapi.ForbiddenText:
			return []string{"the token does not permit access to this app"}
		}
	}
	return messages(err)
}

// messages returns a line for each of several joined errors.
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

// MessageOf returns the text of err for a person: the message without the cause, except
// for internal errors, whose cause is the only information.
func MessageOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // only the outermost is looked at
	case *hinted:
		return MessageOf(e.err)
	case *bourse.Error:
		if e.Code != bourse.CodeInternal {
			return e.Message
		}
	}
	return err.Error()
}
