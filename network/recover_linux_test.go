package network

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// echoes returns an error unless a connection still transfers bytes in both directions.
func echoes(c net.Conn, text string) error {
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		return err
	}
	got, err := readLine(c)
	if err == nil && got != text {
		err = errors.New("came back as " + got)
	}
	return err
}

// inode returns the inode number of the file at path, which identifies a namespace.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// A restart of the daemon does not disturb the machines: connections between machines and to the
// outside continue, and the rules are unchanged.
func TestRecoverKeepsConnections(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	stop := w.run(t)
	a, b, c := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/")), w.attach(t, machine(3, "evil", "two/"))
	b.listen(t, "[::]:8080")
	listenIn(t, remote.ns, "[::]:80", "remote")
	var open []net.Conn
	for _, to := range []string{at(b.Address, 8080), "203.0.113.2:80", "[2001:db8::2]:80"} {
		conn, err := a.dial(to)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := readLine(conn); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	fromHost, err := w.Dial(t.Context(), b.spec.Machine, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fromHost.Close() }()
	if _, err := readLine(fromHost); err != nil {
		t.Fatal(err)
	}
	stop()
	before, was := takeInventory(t, w.cfg.Dir), inode(t, a.Namespace)

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t)
	if err := w.Recover(t.Context(), []Spec{a.spec, b.spec, c.spec}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, takeInventory(t, w.cfg.Dir)); diff != "" {
		t.Errorf("Recover changed the host (-before +after):\n%s", diff)
	}
	for i, conn := range append(open, fromHost) {
		if err := echoes(conn, "still here"); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	again, err := w.Attach(t.Context(), a.spec)
	if err != nil || again.IPv4 != a.IPv4 || inode(t, again.Namespace) != was {
		t.Errorf("Attach after Recover: got %+v, %v; want %+v as before", again, err, a.Attachment)
	}
	if _, err := c.greeting(at(b.Address, 8080)); !isRejection(err) {
		t.Errorf("connection from another network: %v, want a rejection", err)
	}
	if _, err := a.greeting(at(b.Address, 8080)); err != nil {
		t.Errorf("connection in the same network: %v", err)
	}
}

func TestRulesAreRestored(t *testing.T) {
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "evil", "two/"))
	a.listen(t, "[::]:8080")
	open := func() bool {
		_, err := b.greeting(at(a.Address, 8080))
		return err == nil
	}
	var c nftables.Conn
	flush := func() {
		t.Helper()
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if !open() {
			t.Error("without rules, the other network is still rejected, so this test does not prove anything")
		}
	}
	for name, change := range map[string]func(){
		"all rules of the host": c.FlushRuleset,
		"the table's":           func() { c.FlushTable(w.firewall.layout.table) },
		"a set's":               func() { c.FlushSet(w.firewall.layout.links) },
	} {
		change()
		flush()
		if repaired, err := w.firewall.repair(); !repaired || err != nil {
			t.Errorf("%s flushed: repaired %t, %v", name, repaired, err)
		}
		if open() {
			t.Errorf("%s flushed: the other network is not rejected after the repair", name)
		}
	}
	// Attach restores the rules itself, without waiting for the next check.
	c.FlushRuleset()
	flush()
	w.attach(t, machine(3, "shop", "one/"))
	if open() {
		t.Error("the other network is not rejected after Attach")
	}
	// Run restores the rules at its next check.
	c.FlushRuleset()
	flush()
	w.run(t)
	if !eventually(func() bool { return !open() }) {
		t.Error("the other network is not rejected while Run is running")
	}
}

// Other programs change their own rules all the time. This must not cause the worker's rules to be
// rebuilt.
func TestForeignRulesDoNotTriggerRepair(t *testing.T) {
	w := newWorker(t, nil)
	w.attach(t, machine(1, "shop", "one/"))
	if repaired, err := w.firewall.repair(); repaired || err != nil {
		t.Errorf("without changes: repaired %t, %v; want no repair", repaired, err)
	}
	var c nftables.Conn
	table := c.AddTable(&nftables.Table{Name: "another", Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.DelTable(table)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
	})
	if repaired, err := w.firewall.repair(); repaired || err != nil {
		t.Errorf("after another table was added: repaired %t, %v; want no repair", repaired, err)
	}
	w.attach(t, machine(2, "shop", "one/"))
	if now, err := w.firewall.generation(); err != nil || now != w.firewall.verified {
		t.Errorf("after our own change, the generation is %d, %v; want the verified one, %d", now, err, w.firewall.verified)
	}
}

// If another program has changed a running machine's link, the link is repaired in the namespace
// that the machine's processes use.
func TestLinkIsRecreated(t *testing.T) {
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/"))
	a.listen(t, "[::]:8080")
	was := inode(t, a.Namespace)
	for name, damage := range map[string]func(netlink.Link) error{
		"removed":  netlink.LinkDel,
		"set down": netlink.LinkSetDown,
		"unmarked": func(l netlink.Link) error { return netlink.LinkSetAlias(l, "bourse "+string(w.host.mark)) },
	} {
		link, err := netlink.LinkByName(linkName(a.spec.Machine))
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(link); err != nil {
			t.Fatal(err)
		}
		if err := w.Recover(t.Context(), []Spec{a.spec, b.spec}); err != nil {
			t.Errorf("%s: Recover: %v", name, err)
		}
		if inode(t, a.Namespace) != was {
			t.Errorf("%s: another namespace", name)
		}
		// It takes a moment until a link that was down carries packets.
		if !eventually(func() bool { _, err = b.greeting(at(a.Address, 8080)); return err == nil }) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After the host has restarted, only the files at the namespaces' paths exist.
func TestRecoverAfterReboot(t *testing.T) {
	w := newWorker(t, nil)
	kept, gone := machine(1, "shop", "one/"), machine(2, "shop", "one/")
	for _, s := range []Spec{kept, gone} {
		if err := os.WriteFile(w.host.files.path(s.Machine), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Recover(t.Context(), []Spec{kept}); err != nil {
		t.Fatal(err)
	}
	a := w.attach(t, kept)
	a.listen(t, "[::]:8080")
	if _, err := w.Dial(t.Context(), kept.Machine, 8080); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.host.files.path(gone.Machine)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the machine that is not kept: %v, want it removed", err)
	}
	if err := w.Recover(t.Context(), []Spec{{Machine: "x"}}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("Recover with an invalid spec: %v, want invalid", err)
	}
}

// Once the last machine has been detached, the host is in the same state as before the first one
// was attached.
func TestUnusedHostIsCleared(t *testing.T) {
	w := newWorker(t, func(c *Config) { c.PooledNamespaces = -1 })
	w.run(t)
	for range 2 {
		a := w.attach(t, machine(1, "shop", "one/"))
		if err := w.Detach(t.Context(), a.spec.Machine); err != nil {
			t.Fatal(err)
		}
		var now inventory
		if !eventually(func() bool { now = takeInventory(t, w.cfg.Dir); return cmp.Equal(w.before, now) }) {
			t.Errorf("the host differs after the last Detach (-before +now):\n%s", cmp.Diff(w.before, now))
		}
	}
}

// When a machine is detached, its processes lose all connectivity, although they keep the
// namespace alive.
func TestDetachCutsOff(t *testing.T) {
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/"))
	b.listen(t, "[::]:8080")
	if err := w.Detach(t.Context(), a.spec.Machine); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := a.greeting(at(b.Address, 8080)); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("got %v after %s, want unreachable", err, time.Since(began))
	}
	if _, err := w.Dial(t.Context(), a.spec.Machine, 8080); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("Dial: %v", err)
	}
}
