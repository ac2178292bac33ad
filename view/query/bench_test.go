package query_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/view/query"
)

// BenchmarkQuery reads all machines of an app among 100 000, without the network.
func BenchmarkQuery(b *testing.B) {
	f := newFile(b)
	f.machines(b, 100_000)
	f.write(b, "UPDATE machine_rows SET app = 'small' WHERE app = 'app3' AND key < 'm001000'")
	e, err := query.New(query.Config{Source: f})
	if err != nil {
		b.Fatal(err)
	}
	for app, rows := range map[string]int{"small": 10, "app7": 1000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			body := fmt.Sprintf(`{"statement":"SELECT id, state, region, worker FROM machines WHERE app = ?","params":[%q]}`, app)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				w := httptest.NewRecorder()
				if err := e.Query(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body))); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				if n := strings.Count(w.Body.String(), `{"row"`); n != rows {
					b.Fatalf("got %d rows, want %d", n, rows)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
