package query_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/query"
)

func TestMain(m *testing.M) {
	if err := query.BoundMemory(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// file is a Source: a file with the view's schema, a connection that writes to it, and the
// file's watchers.
type file struct {
	path string
	conn *sqlite.Conn

	mu       sync.Mutex
	watchers map[chan struct{}][]string
}

func newFile(tb testing.TB) *file {
	tb.Helper()
	f := &file{path: filepath.Join(tb.TempDir(), "view.db"), watchers: map[chan struct{}][]string{}}
	f.make(tb)
	tb.Cleanup(func() { f.conn.Close() })
	return f
}

// make creates the file.
func (f *file) make(tb testing.TB) {
	tb.Helper()
	var err error
	if f.conn, err = sqlite.OpenConn(f.path); err != nil {
		tb.Fatal(err)
	}
	if err := sqlitex.ExecuteTransient(f.conn, "PRAGMA synchronous = OFF", nil); err != nil {
		tb.Fatal(err)
	}
	schema, err := os.ReadFile("../schema/schema.sql")
	if err != nil {
		tb.Fatal(err)
	}
	if err := sqlitex.ExecuteScript(f.conn, string(schema), nil); err != nil {
		tb.Fatal(err)
	}
}

// write changes the file and notifies the watchers.
func (f *file) write(tb testing.TB, script string) {
	tb.Helper()
	if err := sqlitex.ExecuteScript(f.conn, script, nil); err != nil {
		tb.Fatalf("write %s: %v", script, err)
	}
	f.poke()
}

func (f *file) poke() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (f *file) Path() string { return f.path }

func (f *file) Watch(tables ...string) (<-chan struct{}, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{}, 1)
	f.watchers[c] = tables
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, c)
	}
}

// watched returns the tables of each current watcher.
func (f *file) watched() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list [][]string
	for _, tables := range f.watchers {
		list = append(list, tables)
	}
	return list
}

// machines inserts n machines, spread over 100 apps.
func (f *file) machines(tb testing.TB, n int) {
	tb.Helper()
	f.write(tb, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < `+itoa(n)+`)
		INSERT INTO machine_rows (site, key, epoch, seq, at, hash, placed, app, state, config)
		SELECT 'worker-1', printf('m%06d', i), 1, i, i, i, 1, 'app' || (i % 100), 'started', '{"image":"host","guest":{"cpus":1}}' FROM n;`)
}

// server serves an engine over HTTP, like a broker.
type server struct {
	*file
	engine *query.Engine
	url    string
}

func serve(tb testing.TB, f *file, c query.Config) *server {
	tb.Helper()
	c.Source = f
	e, err := query.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // canceled in a cleanup function, after the server closes
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	srv := httptest.NewServer(routes(e))
	tb.Cleanup(func() {
		cancel()
		running.Wait()
		srv.Client().CloseIdleConnections()
		srv.Close()
	})
	return &server{f, e, srv.URL}
}

func routes(e *query.Engine) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/view/queries":                    e.Query,
		"POST " + query.PathSubscriptions:          e.Subscribe,
		"GET " + query.PathSubscriptions + "/{id}": e.Resume,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				w.WriteHeader(http.StatusTeapot)
				_ = json.NewEncoder(w).Encode(query.Failure{Code: string(bourse.CodeOf(err)), Message: bourse.MessageOf(err)})
			}
		})
	}
	return mux
}

// reply is the reply to a request: lines, or the error before the first line.
type reply struct {
	status int
	header http.Header
	body   string
	lines  []query.Line
	failed query.Failure
}

// ask sends a query and reads the whole reply.
func (s *server) ask(tb testing.TB, req any) reply {
	tb.Helper()
	resp := s.post(tb.Context(), tb, "/v1/view/queries", req)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(raw)}
	if r.status == http.StatusTeapot {
		decode(tb, raw, &r.failed)
		return r
	}
	for line := range bytes.Lines(raw) {
		var l query.Line
		decode(tb, line, &l)
		r.lines = append(r.lines, l)
		if l.Error != nil {
			r.failed = *l.Error
		}
	}
	return r
}

func (s *server) post(ctx context.Context, tb testing.TB, path string, body any) *http.Response {
	tb.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return do(tb, req)
}

func do(tb testing.TB, req *http.Request) *http.Response {
	tb.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	return resp
}

// decode decodes JSON without converting numbers to floats.
func decode(tb testing.TB, raw []byte, into any) {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		tb.Fatalf("decode %q: %v", raw, err)
	}
}

// stream reads the lines of a subscription.
type stream struct {
	id     string
	status int
	close  func()
	lines  *bufio.Reader
}

// subscribe opens a stream. If id is "", it creates a subscription; otherwise it resumes one.
func (s *server) subscribe(tb testing.TB, req any, id, from string) *stream {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var resp *http.Response
	if id == "" {
		resp = s.post(ctx, tb, query.PathSubscriptions, req)
	} else {
		get, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+query.PathSubscriptions+"/"+id+"?from="+from, nil)
		if err != nil {
			tb.Fatal(err)
		}
		resp = do(tb, get)
	}
	end := sync.OnceFunc(func() {
		cancel()
		resp.Body.Close()
	})
	tb.Cleanup(end)
	return &stream{resp.Header.Get(query.HeaderSubscription), resp.StatusCode, end, bufio.NewReader(resp.Body)}
}

// next reads a line.
func (s *stream) next(tb testing.TB) query.Line {
	tb.Helper()
	raw, err := s.lines.ReadBytes('\n')
	if err != nil {
		tb.Fatalf("read a line: %v (after %q)", err, raw)
	}
	var l query.Line
	decode(tb, raw, &l)
	return l
}

// failure reads an error that replaces the lines.
func (s *stream) failure(tb testing.TB) query.Failure {
	tb.Helper()
	raw, err := io.ReadAll(s.lines)
	if err != nil {
		tb.Fatal(err)
	}
	var f query.Failure
	decode(tb, raw, &f)
	return f
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }
