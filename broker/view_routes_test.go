package broker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

// queries answers every query with one line for each word in the query's body. A subscription sends
// each value that it receives from next as a line.
type queries struct {
	next chan string
	err  error // returned by Query after the lines
}

var _ broker.Queries = (*queries)(nil)

func (q *queries) Query(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "read the query: %w", err)
	}
	for word := range strings.FieldsSeq(string(body)) {
		fmt.Fprintln(w, word)
	}
	return q.err
}

func (q *queries) Subscribe(w http.ResponseWriter, r *http.Request) error {
	for {
		select {
		case <-r.Context().Done():
			return nil
		case line := <-q.next:
			if line == "break" {
				return errors.New("the stream broke")
			}
			fmt.Fprintln(w, line)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
	}
}

func (q *queries) Resume(w http.ResponseWriter, r *http.Request) error {
	_, err := fmt.Fprintln(w, r.PathValue("id"), r.URL.Query().Get("from"))
	return err
}

func startQueries(t testing.TB, q *queries) *setup {
	return start(t, withTokens, func(c *broker.Config) {
		c.Queries = q
		c.Health = func(context.Context) []machinesapi.MemberHealth {
			return []machinesapi.MemberHealth{{ID: "w1", Reachable: true}}
		}
	})
}

func TestViewRequiresClusterToken(t *testing.T) {
	s := startQueries(t, &queries{})
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/v1/view/queries", "a\nb\n"},
		{"GET", "/v1/view/subscriptions/7?from=3", "7 3\n"},
		{"GET", "/v1/view/health", `"agrees":true`},
	} {
		for token, status := range map[string]int{"": 401, "wrong": 401, "acme": 403, "shop": 403, "root": 200} {
			rec := s.call(t, c.method, c.path, "a b", "Authorization", "Bearer "+token)
			if rec.Code != status || status == 200 && !strings.Contains(rec.Body.String(), c.want) {
				t.Errorf("%s %s as %q: status %d, want %d: %s", c.method, c.path, token, rec.Code, status, rec.Body)
			}
		}
	}
	if rec := s.call(t, "POST", "/v1/view/subscriptions", "", "Authorization", "Bearer acme"); rec.Code != 403 {
		t.Errorf("subscribe: status %d", rec.Code)
	}
}

func TestViewErrors(t *testing.T) {
	t.Run("before the first line", func(t *testing.T) {
		s := startQueries(t, &queries{err: bourse.Errorf(bourse.CodeInvalid, "near \"selec\": syntax error")})
		rec := s.call(t, "POST", "/v1/view/queries", "", "Authorization", "Bearer root")
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != 400 || got.Code != "invalid" || !strings.Contains(got.Error, "syntax error") {
			t.Errorf("status %d: %+v", rec.Code, got)
		}
	})
	t.Run("a query that is too long", func(t *testing.T) {
		s := startQueries(t, &queries{})
		rec := s.call(t, "POST", "/v1/view/queries", strings.Repeat("x", machinesapi.MaxBody+1), "Authorization", "Bearer root")
		if rec.Code != 400 {
			t.Errorf("status %d", rec.Code)
		}
	})
	t.Run("a broker without a view", func(t *testing.T) {
		s := start(t)
		for _, c := range []string{"POST queries", "POST subscriptions", "GET subscriptions/1", "GET health"} {
			method, path, _ := strings.Cut(c, " ")
			if rec := s.call(t, method, "/v1/view/"+path, ""); rec.Code != 503 {
				t.Errorf("%s: status %d: %s", c, rec.Code, rec.Body)
			}
		}
	})
}

// subscribe opens a subscription whose first line is already available.
func subscribe(t *testing.T, q *queries) *http.Response {
	t.Helper()
	server := httptest.NewServer(startQueries(t, q).handler)
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/view/subscriptions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer root")
	q.next <- `{"change":0}`
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestSubscriptionsStream checks that each line of a subscription arrives as soon as it is written.
func TestSubscriptionsStream(t *testing.T) {
	q := &queries{next: make(chan string, 1)}
	lines := bufio.NewScanner(subscribe(t, q).Body) //nolint:bodyclose // subscribe closes it
	for i := range 3 {
		if i > 0 {
			q.next <- fmt.Sprintf(`{"change":%d}`, i)
		}
		var got struct{ Change int }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &got) != nil || got.Change != i {
			t.Fatalf("line %d is %q, %v", i, lines.Text(), lines.Err())
		}
	}
}

// TestBrokenStreamIsDetected checks that clients can distinguish a broken stream from a complete one.
func TestBrokenStreamIsDetected(t *testing.T) {
	q := &queries{next: make(chan string, 1)}
	body := subscribe(t, q).Body //nolint:bodyclose // subscribe closes it
	q.next <- "break"
	if got, err := io.ReadAll(body); err == nil {
		t.Errorf("the stream ended as if it were complete: %q", got)
	}
}
