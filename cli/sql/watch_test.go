package sql

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// reply is a scripted server's reply to one request. The server checks the request, sends
// the lines, and closes the connection.
type reply struct {
	want   string // expected method, path and query
	code   bourse.Code
	status int // HTTP status; if it is set, the reply comes from a proxy in between
	lines  []string
	pause  time.Duration // pause before each line
	broken bool          // the connection cannot be established
	stay   bool          // the connection stays open after the lines
}

// scripted is a server that sends scripted replies in order.
type scripted struct {
	t       *testing.T
	replies []reply
	asked   int
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.asked >= len(s.replies) {
		s.t.Errorf("request %d: %s %s, want none", s.asked+1, r.Method, r.URL.RequestURI())
		return nil, io.ErrUnexpectedEOF
	}
	p := s.replies[s.asked]
	s.asked++
	if got := r.Method + " " + r.URL.RequestURI(); got != p.want {
		s.t.Errorf("request %d: %s, want %s", s.asked, got, p.want)
	}
	if p.broken {
		return nil, io.ErrUnexpectedEOF
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{machinesapi.HeaderSubscription: {"s1"}}, Request: r}
	if p.status != 0 {
		resp.StatusCode, resp.Body = p.status, http.NoBody
		return resp, nil
	}
	if p.code != "" {
		body, err := json.Marshal(machinesapi.ErrorBody{Error: "the server's message", Code: p.code})
		resp.StatusCode, resp.Body = p.code.Status(), io.NopCloser(bytes.NewReader(body))
		return resp, err
	}
	in, out := io.Pipe()
	resp.Body = in
	go func() { // ends when the reader closes the pipe
		for _, line := range p.lines {
			time.Sleep(p.pause)
			if _, err := io.WriteString(out, line+"\n"); err != nil {
				return
			}
		}
		if p.stay {
			<-r.Context().Done()
			_ = out.CloseWithError(r.Context().Err())
			return
		}
		_ = out.Close()
	}()
	return resp, nil
}

const (
	subscribing = "POST /v1/view/subscriptions"
	firstRows   = `{"columns":["id","n"]}|{"row":[1,["a",1]]}|{"row":[2,["b",22]]}|{"end":{"rows":2,"change":4}}`
)

func script() []string { return strings.Split(firstRows, "|") }

// watching runs "bourse sql --watch" against a server with scripted replies for the given
// time. It must be called in a synctest bubble.
func watching(t *testing.T, out cli.Stream, f options, long time.Duration, asJSON bool, replies ...reply) (said string, err error) {
	t.Helper()
	server := &scripted{t: t, replies: replies}
	errs, errText := clitest.Buffer("")
	s := &cli.Shell{Env: cli.Env{Out: out, Err: errs, Getenv: func(string) string { return "" }, Now: time.Now, Transport: server}, JSON: asJSON}
	f.watch = true
	ctx, cancel := context.WithTimeoutCause(t.Context(), long, bourse.Errorf(bourse.CodeCanceled, "interrupted"))
	defer cancel()
	err = run(ctx, s, f, []string{"SELECT id, n FROM t"})
	if server.asked != len(replies) {
		t.Errorf("%d requests, want %d", server.asked, len(replies))
	}
	return errText.String(), err
}

// eventful returns the replies for a watch with changes, a broken connection that is
// resumed, a temporary failure, and a broker that no longer has the subscription.
func eventful() []reply {
	return []reply{
		{want: subscribing, lines: append(script(), `{"change":[5,"update",1,["a",3]]}`)},
		{want: "GET /v1/view/subscriptions/s1?from=5", broken: true},
		{want: "GET /v1/view/subscriptions/s1?from=5", code: bourse.CodeUnavailable},
		{want: "GET /v1/view/subscriptions/s1?from=5", lines: []string{`{"change":[6,"insert",3,["c",4]]}`, `{"change":[7,"delete",2,["b",22]]}`}},
		{want: "GET /v1/view/subscriptions/s1?from=7", code: bourse.CodeNotFound},
		{want: subscribing, lines: script(), stay: true},
	}
}

func TestWatchReconnects(t *testing.T) {
	for name, c := range map[string]struct {
		flags options
		json  bool
	}{"watch": {}, "watch_json": {json: true}, "watch_csv": {flags: options{csv: true}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, text := clitest.Buffer("")
				said, err := watching(t, out, c.flags, time.Minute, c.json, eventful()...)
				if bourse.CodeOf(err) != bourse.CodeCanceled {
					t.Errorf("got error %v, want canceled", err)
				}
				clitest.Golden(t, "sql_"+name+"_wide", text.String()+"--- stderr\n"+said)
			})
		})
	}
}

// TestWatchResumesOnlyAfterInitialRows checks that a watch is not resumed if the connection
// broke before all initial rows had arrived.
func TestWatchResumesOnlyAfterInitialRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, text := clitest.Buffer("")
		_, err := watching(t, out, options{}, time.Minute, true,
			reply{want: subscribing, lines: script()[:2]},
			reply{want: subscribing, lines: append(script(), `{"change":[9,"insert",3,["c",4]]}`)}, // changes 5 to 8 are missing
			reply{want: "GET /v1/view/subscriptions/s1?from=4", lines: []string{`{"error":{"code":"unavailable","message":"the reader was too slow"}}`}},
			reply{want: "GET /v1/view/subscriptions/s1?from=4", code: bourse.CodeInvalid},
		)
		if bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("got error %v, want the server's invalid", err)
		}
		if strings.Contains(text.String(), `"c"`) || strings.Count(text.String(), `{"kind":"restart"}`) != 1 {
			t.Errorf("printed\n%s", text)
		}
	})
}

// TestWatchDoesNotRetryTheFirstRequest checks that the command fails immediately if the first request fails.
func TestWatchDoesNotRetryTheFirstRequest(t *testing.T) {
	for _, first := range []reply{{want: subscribing, broken: true}, {want: subscribing, code: bourse.CodeInvalid}, {want: subscribing, code: bourse.CodeUnavailable}} {
		synctest.Test(t, func(t *testing.T) {
			out, text := clitest.Buffer("")
			began := time.Now()
			if said, err := watching(t, out, options{}, time.Hour, false, first); err == nil || said != "" || text.Len() > 0 || time.Since(began) > 0 {
				t.Errorf("%+v: got error %v after %s, stderr %q", first, err, time.Since(began), said)
			}
		})
	}
}

// TestWatchDoesNotRetryStatementTimeout checks that a watch reconnects after a proxy's
// timeout, but not after a timeout of the statement.
func TestWatchDoesNotRetryStatementTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, _ := clitest.Buffer("")
		_, err := watching(t, out, options{}, time.Hour, false,
			reply{want: subscribing, lines: script()},
			reply{want: "GET /v1/view/subscriptions/s1?from=4", status: http.StatusGatewayTimeout},
			reply{want: "GET /v1/view/subscriptions/s1?from=4", lines: []string{`{"columns":["id","n"]}`, `{"error":{"code":"timeout","message":"the statement took longer than 1s"}}`}},
		)
		if bourse.CodeOf(err) != bourse.CodeTimeout || !slices.Equal(cli.Hints(err), []string{smallerResultHint}) {
			t.Errorf("got error %v (%q), want timeout and a hint to reduce the result", err, cli.Hints(err))
		}
	})
}

// TestWatchBacksOff checks that the delays between attempts grow while the broker is unavailable.
func TestWatchBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := []reply{{want: subscribing, lines: script()}}
		for range 10 {
			replies = append(replies, reply{want: "GET /v1/view/subscriptions/s1?from=4", broken: true})
		}
		replies = append(replies, reply{want: "GET /v1/view/subscriptions/s1?from=4", code: bourse.CodeForbidden})
		began := time.Now()
		out, _ := clitest.Buffer("")
		said, err := watching(t, out, options{}, time.Hour, false, replies...)
		if took := time.Since(began); bourse.CodeOf(err) != bourse.CodeForbidden || took < 25*time.Second || took > time.Minute {
			t.Errorf("got error %v after %s, want forbidden after about 11 waits of up to %s", err, took, cli.MaxBackoff)
		}
		if n := strings.Count(said, "\n"); n != 1 {
			t.Errorf("%d lines on stderr, want 1:\n%s", n, said)
		}
	})
}

// TestWatchOnATerminal checks that a terminal's table is redrawn in place.
func TestWatchOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		out := cli.Stream{ReadWriter: &b, TTY: true, Width: 60}
		replies := eventful()
		replies[0].pause, replies[3].pause, replies[5].pause = time.Second, time.Second, time.Second
		_, err := watching(t, out, options{}, time.Minute, false, replies...)
		if bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("got error %v, want canceled", err)
		}
		if !strings.Contains(b.String(), "-- 2 rows; connection lost, reconnecting: the reply") {
			t.Errorf("the lost connection is not reported: %q", b.String())
		}
		want := []string{"     id   n", "     a    1", "     b   22", "-- 2 rows, 3 changes, the last at"}
		got := displayed(b.String())
		for i := range min(len(got), len(want)) {
			if !strings.HasPrefix(strings.Join(strings.Fields(got[i]), " "), strings.Join(strings.Fields(want[i]), " ")) {
				t.Errorf("line %d of the screen is %q, want %q", i, got[i], want[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("unexpected screen:\n%s", strings.Join(got, "\n"))
		}
	})
}

// displayed returns the lines that a terminal shows after the given output.
func displayed(written string) []string {
	var lines []string
	row := 0
	for part := range strings.SplitSeq(written, "\x1b[") {
		rest := part
		var n int
		switch {
		case strings.HasPrefix(part, "J"):
			lines, rest = lines[:row], part[1:]
		case strings.HasPrefix(part, "K"):
			rest = part[1:]
		default:
			if k, err := fmt.Sscanf(part, "%dA", &n); err == nil && k == 1 {
				row -= n
				rest = part[strings.IndexByte(part, 'A')+1:]
			}
		}
		for line := range strings.SplitAfterSeq(rest, "\n") {
			if text := strings.Trim(line, "\r\n"); text != "" {
				lines = append(lines[:min(row, len(lines))], append([]string{text}, lines[min(row+1, len(lines)):]...)...)
			}
			if strings.HasSuffix(line, "\n") {
				row++
			}
		}
	}
	return lines
}

// TestScreenFits checks that no frame is larger than the terminal. Otherwise the next frame
// would be drawn in the wrong place.
func TestScreenFits(t *testing.T) {
	width, height := 20, 6
	var b bytes.Buffer
	s := &screen{out: cli.Stream{ReadWriter: &b, TTY: true, CurrentSize: func() (int, int) { return width, height }}, now: clitest.Now.UTC}
	if err := s.begin([]string{"a\x1b[2J", "b", "c", "d", "e", "f"}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		r := changedRow{kind: "insert", id: int64(i), cells: []any{"x\x1b[2J", strings.Repeat("y", 100), nil, json.Number("1"), "\n", "f"}}
		if err := s.row(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range [][2]int{{20, 6}, {200, 50}, {1, 1}, {3, 2}} {
		width, height = size[0], size[1]
		lines := s.lines()
		if len(lines) > max(4, height-1) {
			t.Errorf("%d lines on a terminal with %d", len(lines), height)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > max(1, width-1) || strings.ContainsAny(line, "\x1b\n") {
				t.Errorf("a line has %d characters on a terminal with %d columns: %q", n, width, line)
			}
		}
	}
}

// TestScreenMarksChanges checks that new and changed rows are marked temporarily.
func TestScreenMarksChanges(t *testing.T) {
	clock := clitest.Now
	var b bytes.Buffer
	s := &screen{out: cli.Stream{ReadWriter: &b, TTY: true, Width: 40}, now: func() time.Time { return clock }}
	marks := func() (out []string) {
		s.draw()
		for _, r := range s.rows {
			out = append(out, r.mark)
		}
		return out
	}
	_ = s.begin([]string{"a"})
	for _, r := range []changedRow{{kind: kindRow, id: 1}, {kind: kindRow, id: 2}, {kind: "update", id: 2}, {kind: "insert", id: 3}, {kind: "delete", id: 9}} {
		_ = s.row(r) // writing to a buffer cannot fail
	}
	_ = s.settled(3)
	if diff := cmp.Diff([]string{"", "~", "+"}, marks()); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	clock = clock.Add(markDuration)
	before := b.Len()
	if diff := cmp.Diff([]string{"", "", ""}, marks()); diff != "" || b.Len() == before {
		t.Errorf("marks later (-want +got), %d bytes drawn:\n%s", b.Len()-before, diff)
	}
	before = b.Len()
	if marks(); b.Len() != before {
		t.Errorf("%d bytes were drawn without a change", b.Len()-before)
	}
}
