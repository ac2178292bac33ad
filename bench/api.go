package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchAPI measures the most frequent requests. The time to get one machine is divided by the time
// that a minimal server needs for the same work: fetching the machine from another server, decoding
// it and encoding it again. The time to list a hundred machines is divided by the time to encode
// the list.
func benchAPI(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, []string{"gru"})
	if err != nil {
		return err
	}
	const machines = 100
	if err := createMany(ctx, client, machines); err != nil {
		return err
	}
	list, _, err := client.Machines(ctx, app, machinesapi.ListMachines{})
	if err != nil {
		return err
	}
	if err := measureGet(ctx, client, list[0].ID, out); err != nil {
		return err
	}
	return measureList(ctx, client, machines, out)
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
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := fetch(r.Context(), far.URL)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(m)
	}))
	defer near.Close()
	var get, hop samples
	for range 4000 {
		if err := get.measure(func() error { _, err := client.Machine(ctx, app, id); return err }); err != nil {
			return err
		}
		if err := hop.measure(func() error { _, err := fetch(ctx, near.URL); return err }); err != nil {
			return err
		}
	}
	out["api_get_ms"], out["floor_hop_ms"] = get.median(), hop.median()
	out["api_get_ratio"] = get.median() / hop.median()
	return nil
}

// fetch requests a machine and decodes it.
func fetch(ctx context.Context, url string) (m machinesapi.Machine, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return m, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return m, fmt.Errorf("status %s", resp.Status)
	}
	return m, json.NewDecoder(resp.Body).Decode(&m)
}

// measureList measures the time to list machines, without the time that the client takes to decode
// the list.
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
			return fmt.Errorf("got a list of %d machines, want %d", len(all), machines)
		}
		var body []byte
		if err := encode.measure(func() (err error) { body, err = json.Marshal(all); return }); err != nil {
			return err
		}
		if err := decode.measure(func() error { var again []machinesapi.Machine; return json.Unmarshal(body, &again) }); err != nil {
			return err
		}
	}
	out["api_list_ms"], out["floor_encode_ms"] = list.median()-decode.median(), encode.median()
	out["api_list_ratio"] = out["api_list_ms"] / out["floor_encode_ms"]
	return nil
}
