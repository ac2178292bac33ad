package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchAPI: what clients ask most: a machine, over a handler that asks another one
// for the same body, as a broker does; a list of a hundred, over its encoding; and
// what a wait for a state takes of the broker's memory.
func benchAPI(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru")
	if err != nil {
		return err
	}
	const machines = 100
	ids := make([]bourse.MachineID, machines)
	if _, err := together(4, machines, func(i int) error {
		m, err := client.Create(ctx, app, order("gru", 1), "")
		ids[i] = m.ID
		return err
	}); err != nil {
		return err
	}
	if err := measureGet(ctx, client, ids[0], out); err != nil {
		return err
	}
	if err := measureList(ctx, client, machines, out); err != nil {
		return err
	}
	return measureWaits(ctx, lab, client, ids[0], out)
}

func measureGet(ctx context.Context, client *machinesapi.Client, id bourse.MachineID, out Figures) error {
	m, err := client.Machine(ctx, app, id)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer far.Close()
	near := httptest.NewServer(relay(far.URL))
	defer near.Close()
	var get, hop samples
	for range 4000 {
		if err := get.measure(func() error { _, err := client.Machine(ctx, app, id); return err }); err != nil {
			return err
		}
		if err := hop.measure(func() error { return read(ctx, near.URL) }); err != nil {
			return err
		}
	}
	out["api_get_ms"], out["floor_hop_ms"] = ms(get.quantile(0.5)), ms(hop.quantile(0.5))
	out["api_get_ratio"] = ms(get.quantile(0.5)) / ms(hop.quantile(0.5))
	return nil
}

// relay decodes what a server answers and encodes it again.
func relay(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m machinesapi.Machine
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, http.NoBody)
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				err = json.NewDecoder(resp.Body).Decode(&m)
				_ = resp.Body.Close()
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(m)
	})
}

// read asks for a machine and decodes it.
func read(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a hop answers %s", resp.Status)
	}
	var m machinesapi.Machine
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// measureList measures a list in its client's eyes, and encoding it alone. The list
// travels as it was encoded, so decoding is in the client's time and not in the
// broker's: it is measured, too.
func measureList(ctx context.Context, client *machinesapi.Client, machines int, out Figures) error {
	var list, encode, decode samples
	for range 200 {
		var all []machinesapi.Machine
		if err := list.measure(func() (err error) {
			all, _, err = client.Machines(ctx, app, machinesapi.ListMachines{})
			return err
		}); err != nil {
			return err
		}
		if len(all) != machines {
			return fmt.Errorf("a list has %d machines, want %d", len(all), machines)
		}
		var body []byte
		if err := encode.measure(func() (err error) { body, err = json.Marshal(all); return }); err != nil {
			return err
		}
		if err := decode.measure(func() error { var again []machinesapi.Machine; return json.Unmarshal(body, &again) }); err != nil {
			return err
		}
	}
	out["api_list_ms"] = ms(list.quantile(0.5) - decode.quantile(0.5))
	out["floor_encode_ms"] = ms(encode.quantile(0.5))
	out["api_list_ratio"] = out["api_list_ms"] / out["floor_encode_ms"]
	return nil
}

// measureWaits opens a thousand waits for a state that does not come, each with a
// connection of its own, and asks what broker and worker have then.
func measureWaits(ctx context.Context, lab *Lab, client *machinesapi.Client, id bourse.MachineID, out Figures) error {
	const waits = 1000
	before, err := lab.anonymous()
	if err != nil {
		return err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var sent atomic.Int64
	traced := httptrace.WithClientTrace(waiting, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }})
	transport := &http.Transport{MaxIdleConnsPerHost: waits}
	defer transport.CloseIdleConnections()
	many := &machinesapi.Client{BaseURL: client.BaseURL, Token: client.Token, HTTP: &http.Client{Transport: transport}}
	early := make(chan error, waits)
	for range waits {
		go func() {
			_, err := many.Wait(traced, app, id, machinesapi.WaitMachine{States: []string{"stopped"}})
			early <- err
		}()
	}
	if err := until(ctx, 20*time.Second, "all wait", func() bool { return sent.Load() == waits || len(early) > 0 }); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // let what opening needed be given back
	after, err := lab.anonymous()
	if err != nil {
		return err
	}
	if len(early) > 0 {
		return fmt.Errorf("a wait ended: %w", <-early)
	}
	out["wait_kib"] = float64(after-before) / waits / (1 << 10)
	cancel()
	for range waits {
		<-early
	}
	return nil
}

// anonymous returns the bytes of anonymous memory of all servers, without
// supervisors.
func (l *Lab) anonymous() (total int64, err error) {
	for _, s := range l.servers {
		n, err := anonymousOf(s.Ready.PID)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
