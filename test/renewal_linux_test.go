package test

import (
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestRenewalUnderLoad has every server of a cluster renew its certificate while two proxies serve requests. No request
// may fail. Afterwards, the certificates of two hosts expire while the hosts' servers are stopped. The hosts must
// become members again once the certificates are replaced as docs/operations.md describes.
func TestRenewalUnderLoad(t *testing.T) {
	hosts := bareCluster(t, servertest.Program, markOf(t))
	first := hosts[0]
	defer first.cleanUp()
	before := map[string]*big.Int{}
	for _, h := range hosts {
		h.serving.stop()
		for _, role := range h.roles() {
			h.certify(first, role, time.Now().Add(24*time.Hour-admission.RenewedLife))
			before[h.pair(role)] = h.certificate(role).SerialNumber
		}
	}
	old := func() (paths []string) { // certificates that were not renewed
		for _, h := range hosts {
			for _, role := range h.roles() {
				if path := h.pair(role); h.certificate(role).SerialNumber.Cmp(before[path]) == 0 {
					paths = append(paths, path)
				}
			}
		}
		return paths
	}
	began := time.Now()
	for _, h := range hosts {
		h.serve()
	}
	var turn atomic.Int64
	client := hosts[2].client()
	get := func() error {
		return hosts[2].page(client, hosts[turn.Add(1)%2].addr, "web")
	}
	for range 2 {
		eventually(t, waitTimeout, "the app answers through a proxy", get)
	}
	under := len(old())
	t.Logf("%d of %d certificates remain to be renewed under load", under, len(before))
	if under == 0 {
		t.Error("all certificates were renewed before the first request, so no renewal happened under load")
	}
	requests := startLoad(t, get)
	eventually(t, waitTimeout, "all certificates are renewed", func() error {
		if paths := old(); len(paths) > 0 {
			return fmt.Errorf("these certificates are still the old ones: %v", paths)
		}
		return nil
	})
	t.Logf("all certificates were renewed %s after the servers were started", time.Since(began))
	hosts[2].restart() // from now on, the proxies use new connections to this host
	requests.finish(t)
	first.expires(first)
	hosts[2].expires(first)
}

// expires stops a host's servers, has their certificates expire, and replaces these
// certificates on the first host, where the CA's key is not needed.
func (h *bareHost) expires(first *bareHost) {
	h.t.Helper()
	h.serving.stop()
	if err := os.Remove(first.file("etc", "ca.key")); err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, role := range h.roles() {
		h.certify(first, role, time.Now().Add(-24*time.Hour-admission.RenewedLife))
	}
	h.serve()
	select {
	case <-h.serving.exited:
	case <-time.After(waitTimeout):
		h.t.Fatalf("the servers of %s still run with expired certificates, want them to exit", h.name)
	}
	if text := h.serving.printed(); !strings.Contains(text, "certificate has expired") {
		h.t.Errorf("%s did not report the expired certificate:\n%s", h.name, text)
	}
	for _, role := range h.roles() {
		if err := os.Remove(h.pair(role)); err != nil {
			h.t.Fatal(err)
		}
		name := string(enroll.ServerName(bourse.WorkerID(h.name), role))
		words := []string{"credentials", "cert", "--dir", first.file("etc"), "--role", string(role), name}
		if role == bourse.RoleBroker {
			words = append(words, "--host", h.addr.String())
		}
		if _, err := first.run(words...); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Rename(first.file("etc", name+".pem"), h.pair(role)); err != nil {
			h.t.Fatal(err)
		}
		if err := h.renewed(role); err != nil {
			h.t.Error(err)
		}
	}
	began := time.Now()
	h.serve()
	h.ready()
	eventually(h.t, waitTimeout, h.name+" is a member again", func() error {
		return errors.Join(first.lists("h1 +worker +gru +ok"), first.lists("h2 +worker +gru +ok"), first.lists("h3 +worker +gru +ok"))
	})
	h.t.Logf("%s was a member %s after its certificates were replaced", h.name, time.Since(began))
	eventually(h.t, waitTimeout, h.name+" reports no problem with its connections", h.examine)
}
