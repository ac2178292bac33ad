package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/query"
)

// benchQuery: all machines of an app, ten of them, among a hundred thousand: as
// the broker lists them, whole, and as people ask in SQL, without the network.
func benchQuery(ctx context.Context, lab *Lab, out Figures) (err error) {
	v, err := view.Open(view.Config{Path: filepath.Join(lab.dir, "query.db"), Cluster: "bench", Site: "bench"})
	if err != nil {
		return err
	}
	stop := runView(ctx, v)
	defer func() { err = errors.Join(err, stop()) }()
	begin := time.Now()
	if err := fillFleet(ctx, v); err != nil {
		return err
	}
	out["view_fill_rows_s"] = fleetMachines / time.Since(begin).Seconds()
	out["view_file_bytes_per_machine"] = float64(v.Health().FileBytes) / fleetMachines
	engine, err := query.New(query.Config{Source: query.Of(v)})
	if err != nil {
		return err
	}
	stopEngine := runEngine(ctx, engine)
	defer func() { err = errors.Join(err, stopEngine()) }()
	const rounds, warm = 8000, 200
	var list, sql samples
	for i := range rounds + warm {
		if i == warm {
			list, sql = nil, nil
		}
		app := fleetAppName(rand.IntN(fleetMachines / fleetApp))
		if err := list.measure(func() error {
			found, err := view.Ask(ctx, v, inventory.Machines(inventory.Filter{App: app}))
			if err == nil && (len(found) != fleetApp || found[0].Config.Guest == nil) {
				err = fmt.Errorf("%d machines of %s", len(found), app)
			}
			return err
		}); err != nil {
			return err
		}
		body := fmt.Sprintf(`{"statement":"SELECT id, state, region, worker FROM machines WHERE app = ?","params":[%q]}`, app)
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/view/queries", strings.NewReader(body))
		if err := sql.measure(func() error { return engine.Query(w, req) }); err != nil {
			return err
		}
		if n := strings.Count(w.Body.String(), `{"row"`); n != fleetApp {
			return fmt.Errorf("%d rows of %s: %s", n, app, w.Body)
		}
		if i%8 == 0 {
			breathe(ctx)
		}
	}
	out["query_p50_us"], out["query_p99_us"] = us(list.quantile(0.5)), us(list.quantile(0.99))
	out["query_sql_p50_us"], out["query_sql_p99_us"] = us(sql.quantile(0.5)), us(sql.quantile(0.99))
	return nil
}

// runEngine runs an engine until stop is called.
func runEngine(ctx context.Context, e *query.Engine) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}
