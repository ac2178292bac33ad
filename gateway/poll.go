package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// Default and maximum time that a call waits.
const (
	defaultWait = 30 * time.Second
	maxWait     = time.Minute
)

// scriptType is the media type of a reply that is a job's shell script.
const scriptType = "text/x-shellscript"

// maxWatched is the maximum number of jobs that one call may watch.
const maxWatched = 1000

// waiting returns the context for a call that waits. The context is done when the time in ?wait= has passed or
// [Gateway.Leave] is called.
func (g *Gateway) waiting(r *http.Request) (context.Context, context.CancelFunc, error) {
	wait := defaultWait
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > maxWait {
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "invalid wait %s: use 0s to %s", bourse.Quoted(text), maxWait)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	stop := context.AfterFunc(g.stay, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// jobs waits for a job that the caller may claim, and replies with it.
func (g *Gateway) jobs(w http.ResponseWriter, r *http.Request) error { return g.next(w, r, "") }

// assigned waits for a job for a registered host, and replies with it.
func (g *Gateway) assigned(w http.ResponseWriter, r *http.Request) error {
	host := r.URL.Query().Get("host")
	if host == "" {
		return bourse.Errorf(bourse.CodeInvalid, "?host= is required: use the registered name")
	}
	return g.next(w, r, host)
}

func (g *Gateway) next(w http.ResponseWriter, r *http.Request, host string) error {
	ctx, cancel, err := g.waiting(r)
	if err != nil {
		return err
	}
	defer cancel()
	j, ok, err := g.cfg.Driver.Next(ctx, host, ticketIn(r))
	switch {
	case err != nil:
		return err
	case !ok:
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.Header.Get("Accept"), scriptType):
		w.Header().Set("Content-Type", scriptType)
		_, _ = w.Write([]byte(script(&j))) // an error means that the poller has disconnected and will not claim the job
	default:
		writeBody(w, &j)
	}
	return nil
}

// script returns a shell script that executes a job's command. The first line is a comment with the job's name. The
// name need not be quoted there, because it cannot contain a line break.
func script(j *pull.Job) string {
	var b strings.Builder
	b.WriteString("# job " + j.Name + "\n")
	for _, e := range j.Env {
		name, value, _ := strings.Cut(e, "=")
		if shellName(name) { // a shell cannot set variables with other kinds of names
			b.WriteString("export " + name + "=" + shellQuote(value) + "\n")
		}
	}
	if j.Dir != "" {
		b.WriteString("cd " + shellQuote(j.Dir) + " || exit 127\n")
	}
	b.WriteString("exec")
	for _, word := range j.Command {
		b.WriteString(" " + shellQuote(word))
	}
	b.WriteString("\n")
	return b.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func shellName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// canceled is a reply that lists the jobs that a poller must stop.
type canceled struct {
	Names []string `json:"names"`
	Next  uint64   `json:"next"` // value for ?after= in the next request
}

// cancellations waits until there are jobs that the caller must stop, and lists them. If the request contains ?job=,
// the list is limited to the named jobs. Otherwise, it contains all jobs that were canceled after an earlier reply;
// ?after= is the value of "next" in that reply.
func (g *Gateway) cancellations(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	jobs := slices.Compact(slices.Sorted(slices.Values(q["job"])))
	if len(jobs) > maxWatched {
		return bourse.Errorf(bourse.CodeInvalid, "%d jobs exceed the limit of %d", len(jobs), maxWatched)
	}
	var after uint64
	if text := q.Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "invalid after %s: use the value of next from the previous reply", bourse.Quoted(text))
		}
	}
	ctx, cancel, err := g.waiting(r)
	if err != nil {
		return err
	}
	defer cancel()
	names, next := g.cfg.Driver.Cancellations(ctx, ticketIn(r), jobs, after)
	if len(names) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	writeBody(w, canceled{Names: names, Next: next})
	return nil
}
