package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/enroll"
)

// TestUpgradeUnderLoad upgrades the three hosts of a cluster one after another, by
// replacing the program and restarting the servers, while proxies serve requests. Like a
// load balancer, the client sends a request to the other proxy if the connection to one
// fails. No request may fail, all machines must keep their processes, and orders must be
// filled on every host in every state of the upgrade.
func TestUpgradeUnderLoad(t *testing.T) {
	older, newer := buildRelease(t, "1.0.0"), buildRelease(t, "1.0.1")
	hello, mark := buildHello(t), markOf(t)
	hosts := bareCluster(t, older, mark+"first")
	first := hosts[0]
	defer first.cleanUp()
	before := pidsOf(t, mark+"first")
	if len(before) != len(hosts) {
		t.Fatalf("%d machines run, want %d", len(before), len(hosts))
	}
	var turn, again atomic.Int64
	client := hosts[2].client()
	requests := startLoad(t, func() error {
		n := turn.Add(1)
		err := hosts[2].page(client, hosts[n%2].addr, "web")
		if _, unanswered := errors.AsType[*url.Error](err); unanswered {
			again.Add(1)
			err = hosts[2].page(client, hosts[(n+1)%2].addr, "web")
		}
		return err
	})
	for i, h := range hosts {
		h.install(newer)
		began := time.Now()
		h.restart()
		t.Logf("the servers of %s were ready %s after their restart began", h.name, time.Since(began))
		for _, on := range hosts {
			first.order(on, hello, mark+"later")
		}
		if now := pidsOf(t, mark+"first"); !slices.Equal(now, before) {
			t.Errorf("after the upgrade of %s, the machines have the processes %v, want %v", h.name, now, before)
		}
		if n := len(pidsOf(t, mark+"later")); n != (i+1)*len(hosts) {
			t.Errorf("after the upgrade of %s, %d additional machines run, want %d", h.name, n, (i+1)*len(hosts))
		}
		eventually(t, waitTimeout, h.name+" reports the releases", func() error { return h.reports("1.0.0", hosts[i+1:]) })
		eventually(t, waitTimeout, h.name+" reports no problem with its connections", h.examine)
	}
	requests.finish(t)
	t.Logf("%d requests were sent to the other proxy because a connection failed", again.Load())
}

// reports returns an error unless "bourse doctor" reports on this host that exactly the
// servers of the given hosts run another release.
func (h *bareHost) reports(release string, others []*bareHost) error {
	out, failed := h.run("doctor", "--json", "--config", h.file("etc", "bourse.toml"))
	var found []struct{ Check, Status, Finding string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return errors.Join(failed, err)
	}
	var got, want []string
	for _, f := range found {
		if f.Check == "versions" && f.Status != "ok" && strings.Contains(f.Finding, release) {
			got = append(got, strings.Fields(f.Finding)[0])
		}
	}
	for _, other := range others {
		for _, role := range other.roles() {
			want = append(want, string(enroll.ServerName(bourse.WorkerID(other.name), role)))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("doctor reports that %v run %s, want %v", got, release, want)
	}
	return nil
}

// buildRelease builds the program as a release, and returns its path.
func buildRelease(t *testing.T, release string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bourse-"+release)
	command(t, "go", "build", "-ldflags", "-s -w -X main.release="+release, "-o", path, "github.com/bourse-dev/bourse/cmd/bourse")
	return path
}
