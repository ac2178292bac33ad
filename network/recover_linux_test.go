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

// A restarted daemon does not disturb its machines: connections between machines and to
// the outside continue, and the rules are unchanged.
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
		t.Errorf("on the host (-before +after):\n%s", diff)
	}
	for i, conn := range append(open, fromHost) {
		if err := echoes(conn, "still here"); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	again, err := w.Attach(t.Context(), a.spec)
	if err != nil || again.IPv4 != a.IPv4 || inode(t, again.Namespace) != was {
		t.Errorf("Attach gives %+v, %v; want what it was: %+v", again, err, a.Attachment)
	}
	if _, err := c.greeting(at(b.Address, 8080)); !isRejection(err) {
		t.Errorf("another network: %v, want a rejection", err)
	}
	if _, err := a.greeting(at(b.Address, 8080)); err != nil {
		t.Errorf("the same network: %v", err)
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
			t.Error("flushed, and the other network is still kept out: this test shows nothing")
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
			t.Errorf("%s: repaired %t, %v", name, repaired, err)
		}
		if open() {
			t.Errorf("%s: not restored", name)
		}
	}
	// Attach restores the rules itself, without waiting for the next check.
	c.FlushRuleset()
	flush()
	w.attach(t, machine(3, "shop", "one/"))
	if open() {
		t.Error("the other network is let in after Attach")
	}
	// Run restores them at its next check.
	c.FlushRuleset()
	flush()
	w.run(t)
	if !eventually(func() bool { return !open() }) {
		t.Error("not restored by Run")
	}
}

// Other programs change their own rules all the time. That must not cause the worker's
// rules to be rebuilt.
func TestForeignRulesDoNotTriggerRepair(t *testing.T) {
	w := newWorker(t, nil)
	w.attach(t, machine(1, "shop", "one/"))
	if repaired, err := w.firewall.repair(); repaired || err != nil {
		t.Errorf("nothing has happened: repaired %t, %v", repaired, err)
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
		t.Errorf("another table came: repaired %t, %v", repaired, err)
	}
	w.attach(t, machine(2, "shop", "one/"))
	if now, err := w.firewall.generation(); err != nil || now != w.firewall.verified {
		t.Errorf("generation %d, %v after our own change; want it known, %d", now, err, w.firewall.verified)
	}
}

// If a running machine's link was changed from outside, it is repaired in the namespace
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
		// A link that was down needs a moment until it carries packets.
		if !eventually(func() bool { _, err = b.greeting(at(a.Address, 8080)); return err == nil }) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After a restart of the host, only the files of the namespaces exist.
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
		t.Errorf("the other's file: %v", err)
	}
	if err := w.Recover(t.Context(), []Spec{{Machine: "x"}}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a bad spec: %v", err)
	}
}

// When no machine is left, the host is as it was before the first one was attached.
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
			t.Errorf("(-before +now):\n%s", cmp.Diff(w.before, now))
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
		t.Errorf("%v after %s, want unreachable", err, time.Since(began))
	}
	if _, err := w.Dial(t.Context(), a.spec.Machine, 8080); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("Dial: %v", err)
	}
}
