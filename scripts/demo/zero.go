package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// idleAfter is how long no one asks before a machine of the demo is stopped.
const idleAfter = "2s"

// fromZero has a request start the only machine of an app.
func (d *demo) fromZero(ctx context.Context) error {
	for _, args := range [][]string{
		{"app", "create", "web"},
		{"machine", "run", "host", "--app", "web", "--region", "mad", "--port", "80", "--autostop", "--skip-launch", "--", "./hello"},
	} {
		if code, err := d.bourse(ctx, args...); err != nil || code != 0 {
			return fmt.Errorf("exit status %d: %w", code, err)
		}
	}
	if m, err := d.web(ctx); err != nil || m.State == bourse.StateStarted {
		return fmt.Errorf("machine %s is %s before anyone has asked (%w)", m.ID, m.State, err)
	}
	host := strings.Replace(d.state.Proxy, "127.0.0.1", "web.localhost", 1)
	show("curl " + host + "/")
	// The proxy routes what it has heard of; this machine was made a moment ago.
	var text string
	var took time.Duration
	if err := until(ctx, 10*time.Second, "the proxy answers for the app", func() bool {
		begin := time.Now()
		var err error
		text, err = get(ctx, d.state.Proxy, strings.TrimPrefix(host, "http://"))
		took = time.Since(begin)
		return err == nil
	}); err != nil {
		return err
	}
	tell(text)
	m, err := d.web(ctx)
	if err != nil {
		return err
	}
	if m.State != bourse.StateStarted || !strings.Contains(text, string(m.ID)) {
		return fmt.Errorf("machine %s is %s, and the reply says %q", m.ID, m.State, text)
	}
	tell(fmt.Sprintf("machine %s was started for it: %d ms until the reply", m.ID, took.Milliseconds()))
	return nil
}

// toZero waits for its worker to stop a machine that nobody uses.
func (d *demo) toZero(ctx context.Context) error {
	if err := until(ctx, 30*time.Second, "the machine is stopped again", func() bool {
		m, err := d.web(ctx)
		return err == nil && m.State == bourse.StateStopped
	}); err != nil {
		return err
	}
	code, err := d.bourse(ctx, "machine", "list", "--app", "web")
	if err != nil || code != 0 {
		return fmt.Errorf("exit status %d: %w", code, err)
	}
	return nil
}

// web returns the only machine of app web.
func (d *demo) web(ctx context.Context) (machinesapi.Machine, error) {
	list, _, err := d.client().Machines(ctx, "web", machinesapi.ListMachines{})
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("app web has %d machines, want 1", len(list))
	}
	if err != nil {
		return machinesapi.Machine{}, err
	}
	return d.client().Machine(ctx, "web", list[0].ID)
}

// get asks a server for / of another host name than its own.
func get(ctx context.Context, at, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the reply is %s: %s", resp.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}
