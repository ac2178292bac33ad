package gateway

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// maxBy is the maximum length of a claimer's name in bytes.
const maxBy = 128

// claim assigns a job to the first caller that claims it. ?by= is the caller's name. If the reply was lost, a caller
// that sent its own ticket may repeat the claim.
func (g *Gateway) claim(w http.ResponseWriter, r *http.Request) error {
	who := pull.Claimer{By: r.URL.Query().Get("by")}
	switch {
	case len(who.By) > maxBy:
		return bourse.Errorf(bourse.CodeInvalid, "?by= is %d bytes long, but the limit is %d", len(who.By), maxBy)
	case who.By == "":
		who.By = r.RemoteAddr
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			who.By = host
		}
	}
	var made pull.Ticket
	var err error
	if who.Ticket, made, err = ticketOf(r); err != nil {
		return err
	}
	return g.take(w, r, who, made)
}

// started claims a job for a registered host. The host may repeat the call, which then serves as a heartbeat.
func (g *Gateway) started(w http.ResponseWriter, r *http.Request) error {
	host := r.URL.Query().Get("host")
	if host == "" {
		return bourse.Errorf(bourse.CodeInvalid, "?host= is required: use the registered name")
	}
	return g.take(w, r, pull.Claimer{By: host, Host: host, Ticket: ticketIn(r)}, "")
}

func (g *Gateway) take(w http.ResponseWriter, r *http.Request, who pull.Claimer, made pull.Ticket) error {
	name, err := nameIn(r)
	if err != nil {
		return err
	}
	if err := g.cfg.Driver.Claim(name, who); err != nil {
		return err
	}
	writeBody(w, jobName{name, made})
	return nil
}

// report is the body of a release request or a stopped request.
type report struct {
	ExitCode *int   `json:"exit_code"` // null means that the poller returns the job; not allowed in a stopped request
	Output   string `json:"output,omitempty"`
}

// release records that a job has ended, or that its poller has returned it without finishing it. A returned job counts
// as failed, and its machine's restart policy determines whether the job is offered again.
func (g *Gateway) release(w http.ResponseWriter, r *http.Request) error { return g.end(w, r, false) }

// stopped records that a job on a registered host has ended.
func (g *Gateway) stopped(w http.ResponseWriter, r *http.Request) error { return g.end(w, r, true) }

func (g *Gateway) end(w http.ResponseWriter, r *http.Request, coded bool) error {
	name, err := nameIn(r)
	if err != nil {
		return err
	}
	said, err := readReport(w, r)
	switch {
	case err != nil:
		return err
	case said.ExitCode == nil && coded:
		return bourse.Errorf(bourse.CodeInvalid, "exit_code is required")
	}
	how := pull.Report{Code: -1, Error: "the poller returned the job", Output: []byte(said.Output), Ticket: ticketIn(r)}
	if said.ExitCode != nil {
		how.Code, how.Error = *said.ExitCode, ""
	}
	if err := g.cfg.Driver.End(name, how); err != nil {
		return err
	}
	writeBody(w, jobName{Name: name})
	return nil
}

// readReport reads a poller's report that a job has ended. The body is JSON or, if the query contains exit_code, the
// job's output. Only the last part of the output is stored.
func readReport(w http.ResponseWriter, r *http.Request) (report, error) {
	var said report
	text := r.URL.Query().Get("exit_code")
	if text == "" {
		if r.ContentLength == 0 {
			return said, nil
		}
		err := readBody(w, r, &said)
		return said, err
	}
	code, err := strconv.Atoi(text)
	if err != nil {
		return said, bourse.Errorf(bourse.CodeInvalid, "invalid exit_code %s: use 0 to 255", bourse.Quoted(text))
	}
	// The body's size does not have to be limited, because only the last part of the body is stored.
	throttle.StreamBody(r)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(outputTimeout)) // ignore the error: some writers do not support deadlines
	output, err := readTail(r.Body)
	if err != nil {
		return said, bourse.Errorf(bourse.CodeInvalid, "the output was truncated: %w", err)
	}
	return report{ExitCode: &code, Output: string(output)}, nil
}

// outputTimeout is the time limit for receiving a job's output.
const outputTimeout = 5 * time.Minute

// readTail reads r to its end and returns the last pull.MaxOutput bytes.
func readTail(r io.Reader) ([]byte, error) {
	var kept []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		if kept = append(kept, chunk[:n]...); len(kept) > 2*pull.MaxOutput {
			kept = kept[:copy(kept, kept[len(kept)-pull.MaxOutput:])]
		}
		switch {
		case err == io.EOF:
			return kept[max(0, len(kept)-pull.MaxOutput):], nil
		case err != nil:
			return nil, err
		}
	}
}
