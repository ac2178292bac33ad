package enroll_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/machinesapi"
)

// keyServer is a server with a file of gossip keys.
type keyServer struct {
	bourse.Member
	file *enroll.KeyFile
	live *admission.Live[[][]byte]
}

// newKeyServer creates a server with a key file that contains the given text.
func newKeyServer(tb rapid.TB, path string, member bourse.Member, text []byte) *keyServer {
	tb.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return openKeyServer(tb, path, member)
}

// openKeyServer starts a server with an existing key file.
func openKeyServer(tb rapid.TB, path string, member bourse.Member) *keyServer {
	tb.Helper()
	live, err := admission.LoadGossipKeys(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &keyServer{member, &enroll.KeyFile{
		Path: path, Look: live.Look, New: admission.NewGossipKey,
		InUse: func() []string { return admission.GossipKeyIDs(live.Get()) },
		IDs: func(text []byte) ([]string, error) {
			keys, err := admission.ParseGossipKeys(text)
			return admission.GossipKeyIDs(keys), err
		},
	}, live}
}

// keyCluster is a cluster of servers with the same gossip key. The first one is the broker that
// rotates it.
type keyCluster struct {
	rapid.TB
	servers []*keyServer
	send    func(to *keyServer, text []byte) (enroll.KeyReply, error) // tests may replace it
	down    map[bourse.WorkerID]bool
}

func newKeyCluster(tb rapid.TB, dir string, n int) *keyCluster {
	tb.Helper()
	c := &keyCluster{TB: tb, down: map[bourse.WorkerID]bool{}}
	key := admission.NewGossipKey()
	for i := range n {
		m := bourse.Member{ID: bourse.WorkerID(fmt.Sprintf("s%d", i)), Role: bourse.RoleWorker}
		if i == 0 {
			m.Role = bourse.RoleBroker
		}
		c.servers = append(c.servers, newKeyServer(tb, filepath.Join(dir, string(m.ID)), m, key))
	}
	c.send = func(to *keyServer, text []byte) (enroll.KeyReply, error) {
		if len(text) == 0 {
			return to.file.Report(), nil
		}
		return to.file.Set(context.Background(), &enroll.KeyRequest{Text: text})
	}
	return c
}

// rotation returns the rotation of a broker that has just started.
func (c *keyCluster) rotation() *enroll.Rotation {
	first := c.servers[0]
	return &enroll.Rotation{
		Self: first.Member, Own: first.file,
		Servers: func() (all []enroll.KeyServer) {
			for _, s := range c.servers[1:] {
				all = append(all, enroll.KeyServer{Member: s.Member, Down: c.down[s.ID]})
			}
			return all
		},
		Send: func(_ context.Context, to bourse.Member, in *enroll.KeyRequest) (enroll.KeyReply, error) {
			i := slices.IndexFunc(c.servers, func(s *keyServer) bool { return s.ID == to.ID })
			return c.send(c.servers[i], in.Text)
		},
	}
}

// checkDecryption fails the test unless every server can decrypt the messages of every other server.
func (c *keyCluster) checkDecryption() {
	c.Helper()
	for _, from := range c.servers {
		for _, to := range c.servers {
			if first := from.live.Get()[0]; !slices.ContainsFunc(to.live.Get(), func(k []byte) bool { return bytes.Equal(k, first) }) {
				c.Fatalf("%s cannot decrypt messages of %s", to.ID, from.ID)
			}
		}
	}
}

// finish carries out steps until the rotation is done, and returns them.
func (c *keyCluster) finish(r *enroll.Rotation, start bool) (steps []machinesapi.RotationStep) {
	c.Helper()
	for range 10 {
		out, err := r.Step(context.Background(), machinesapi.Rotate{Start: start})
		if err != nil {
			c.Fatal(err)
		}
		steps = append(steps, out.Step)
		if out.Done {
			return steps
		}
		start = false
	}
	c.Fatalf("the rotation was not complete after the steps %v", steps)
	return nil
}

// checkReplaced fails the test unless every server has only one key, which is not the old one.
func (c *keyCluster) checkReplaced(old []byte) {
	c.Helper()
	for _, s := range c.servers {
		keys := s.live.Get()
		if len(keys) != 1 || bytes.Equal(keys[0], old) || !bytes.Equal(keys[0], c.servers[0].live.Get()[0]) {
			c.Errorf("%s has %d keys; the old key is the first one: %v", s.ID, len(keys), bytes.Equal(keys[0], old))
		}
	}
}

func TestRotation(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 4)
	old := c.servers[0].live.Get()[0]
	want := []machinesapi.RotationStep{machinesapi.RotationAdd, machinesapi.RotationUse, machinesapi.RotationRemove}
	if steps := c.finish(c.rotation(), true); !slices.Equal(steps, want) {
		t.Errorf("got steps %v, want %v", steps, want)
	}
	c.checkReplaced(old)
	for _, s := range c.servers {
		text, err := os.ReadFile(s.file.Path)
		info, statErr := os.Stat(s.file.Path)
		if err := errors.Join(err, statErr); err != nil || info.Mode() != 0o600 || strings.Count(string(text), "\n") != 2 {
			t.Errorf("the file of %s: %v %q, %v", s.ID, info.Mode(), text, err)
		}
	}
	if steps := c.finish(c.rotation(), false); !slices.Equal(steps, want[2:]) {
		t.Errorf("steps without a start: got %v, want %v", steps, want[2:])
	}
}

// caServer is a server whose certificate comes from the first CA in its file.
type caServer struct {
	bourse.Member
	files  admission.Files
	creds  *admission.Credentials
	issuer []byte // a broker's issuer
	file   *enroll.KeyFile
}

// caCluster is a cluster of servers with certificates. The first two are brokers.
type caCluster struct {
	rapid.TB
	servers []*caServer
	view    [][]byte     // certificates that servers used to sign before a restart
	fault   func() error // called before and after each message; an error means that the message or its reply is lost
}

func newCACluster(tb rapid.TB, dir string, n int, ca *admission.CA) *caCluster {
	tb.Helper()
	c := &caCluster{TB: tb, fault: func() error { return nil }}
	issuer, err := ca.NewIssuer(time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		s := &caServer{Member: bourse.Member{ID: bourse.WorkerID(fmt.Sprintf("s%d", i)), Role: bourse.RoleWorker}}
		if i < 2 {
			s.Role, s.issuer = bourse.RoleBroker, issuer.Pair().PEM()
		}
		s.files = admission.Files{CA: filepath.Join(dir, string(s.ID)+"-ca.pem"), Pair: filepath.Join(dir, string(s.ID)+".pem")}
		pair, err := issuer.Issue(admission.Identity{ID: s.ID, Role: s.Role}, nil, time.Now())
		err = errors.Join(err, os.WriteFile(s.files.CA, ca.Pair().Cert, 0o600), os.WriteFile(s.files.Pair, pair.PEM(), 0o600))
		if err != nil {
			tb.Fatal(err)
		}
		c.servers = append(c.servers, s)
		c.start(s)
	}
	return c
}

// start starts a server, which may have run before.
func (c *caCluster) start(s *caServer) {
	c.Helper()
	var err error
	if s.creds, err = admission.Load(s.files); err != nil {
		c.Fatal(err)
	}
	s.file = &enroll.KeyFile{
		Path: s.files.CA, Look: s.creds.Look, InUse: s.creds.CAs,
		IDs: func(text []byte) ([]string, error) {
			b, err := admission.ParseBundle(text)
			return b.IDs(), err
		},
		Adopt: func(_ context.Context, in *enroll.KeyRequest, reply *enroll.KeyReply) error {
			reply.Signers = s.creds.Used()
			if s.creds.ByFirstCA() {
				return nil
			}
			if len(in.Issuer) > 0 {
				s.issuer = in.Issuer
			}
			return c.renew(s)
		},
	}
}

// renew renews a server's certificate at the first broker. It returns an error if the broker does not use the new CA
// yet.
func (c *caCluster) renew(s *caServer) error {
	pem := c.servers[0].issuer
	issuer, err := admission.ParseCA(admission.Pair{Cert: pem, Key: pem})
	if err != nil {
		return err
	}
	pair, err := issuer.Issue(admission.Identity{ID: s.ID, Role: s.Role}, nil, time.Now())
	if err = errors.Join(err, os.WriteFile(s.files.Pair, pair.PEM(), 0o600)); err != nil {
		return err
	}
	for range 3 {
		_, lookErr := s.creds.Look()
		err = errors.Join(err, lookErr)
	}
	if err == nil && !s.creds.ByFirstCA() {
		err = errors.New("the broker does not use the new CA yet")
	}
	return err
}

func (c *caCluster) rotation() *enroll.Rotation {
	return &enroll.Rotation{
		Self: c.servers[0].Member, Own: c.servers[0].file,
		Servers: func() (all []enroll.KeyServer) {
			for _, s := range c.servers[1:] {
				all = append(all, enroll.KeyServer{Member: s.Member})
			}
			return all
		},
		Send: func(ctx context.Context, to bourse.Member, in *enroll.KeyRequest) (enroll.KeyReply, error) {
			defer c.checkTrust()
			s := c.servers[slices.IndexFunc(c.servers, func(s *caServer) bool { return s.ID == to.ID })]
			if (len(in.Issuer) > 0) != (s.Role == bourse.RoleBroker) && len(in.Text) > 0 {
				c.Errorf("%s %s has received an issuer of %d bytes", s.Role, s.ID, len(in.Issuer))
			}
			if err := c.fault(); err != nil {
				return enroll.KeyReply{}, err
			}
			if len(in.Text) == 0 {
				return s.file.Report(), c.fault()
			}
			reply, err := s.file.Set(ctx, in)
			return reply, errors.Join(err, c.fault())
		},
		Signers: func(_ context.Context, ca []byte, replied [][]byte) (out []string, err error) {
			b, err := admission.ParseBundle(ca)
			for _, der := range append(replied, c.view...) {
				chain, parseErr := x509.ParseCertificates(der)
				if err = errors.Join(err, parseErr); err == nil && !b.Issued(chain) {
					out = append(out, strings.TrimSpace(string(admission.CertPEM(chain[0]))))
				}
			}
			slices.Sort(out)
			return slices.Compact(out), err
		},
	}
}

// checkTrust fails the test unless every server trusts the certificate of every other server.
func (c *caCluster) checkTrust() {
	c.Helper()
	for _, from := range c.servers {
		der, _ := from.creds.Own()
		chain, err := x509.ParseCertificates(der)
		if err != nil {
			c.Fatal(err)
		}
		for _, to := range c.servers {
			if !to.creds.Issued(chain) {
				c.Fatalf("%s does not trust the certificate of %s", to.ID, from.ID)
			}
		}
	}
}

// TestRotationOfTheCA replaces a CA while messages and replies are lost and servers are restarted. All servers must
// trust each other's certificates at any time. In the end, no server may trust the old CA, but signatures made with its
// certificates must remain valid.
func TestRotationOfTheCA(t *testing.T) {
	dirs := 0
	base := t.TempDir()
	old, oldErr := admission.NewCA("test", time.Now())
	ca, caErr := admission.NewCA("test", time.Now())
	other, otherErr := admission.NewCA("test", time.Now())
	issuer, err := ca.NewIssuer(time.Now())
	if err := errors.Join(oldErr, caErr, otherErr, err); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		dirs++
		dir := filepath.Join(base, fmt.Sprint(dirs))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := newCACluster(t, dir, rapid.IntRange(2, 4).Draw(t, "servers"), old)
		var births [][]byte
		for _, s := range c.servers {
			der, _ := s.creds.Own()
			births = append(births, der)
		}
		in := machinesapi.Rotate{Start: true, CA: string(ca.Pair().Cert), Issuer: string(issuer.Pair().PEM())}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) //nolint:gosec // not security-sensitive
		var mu sync.Mutex
		c.fault = func() error { // called by several goroutines, which may not use t
			mu.Lock()
			defer mu.Unlock()
			if rng.IntN(5) == 0 {
				return errors.New("it was lost")
			}
			return nil
		}
		began := false
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			out, err := c.rotation().Step(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			began = began || out.Started
			if restarted := rapid.IntRange(0, len(c.servers)).Draw(t, "restarted"); restarted < len(c.servers) && !out.Done {
				c.view = append(c.view, c.servers[restarted].creds.Used()...)
				c.start(c.servers[restarted])
			}
		}
		c.fault = func() error { return nil }
		if began {
			_, err := c.rotation().Step(t.Context(), machinesapi.Rotate{CA: string(other.Pair().Cert), Issuer: in.Issuer})
			if bourse.CodeOf(err) != bourse.CodeConflict {
				t.Errorf("a rotation to a third CA: %v, want conflict", err)
			}
		}
		for range 4 {
			out, err := c.rotation().Step(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			c.checkTrust()
			if out.Done {
				break
			}
		}
		for _, s := range c.servers {
			if ids := s.creds.CAs(); len(ids) != 1 || !s.creds.ByFirstCA() {
				t.Errorf("%s trusts %d CAs; its certificate comes from the first one: %v", s.ID, len(ids), s.creds.ByFirstCA())
			}
			for i, birth := range births {
				if id, _, _, err := s.creds.Author(birth, time.Now()); err != nil {
					t.Errorf("%s rejects an earlier signature of %s %s: %v", s.ID, c.servers[i].ID, id, err)
				}
			}
		}
	})
}

// TestServersOfOneHost has two servers with the same key file. When one of them has written the file, the other must
// use the new keys immediately.
func TestServersOfOneHost(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 3)
	c.servers[1] = openKeyServer(t, c.servers[0].file.Path, c.servers[1].Member)
	old := c.servers[0].live.Get()[0]
	r := c.rotation()
	for i := range 3 {
		out, err := r.Step(t.Context(), machinesapi.Rotate{Start: i == 0})
		c.checkDecryption()
		if err != nil || slices.ContainsFunc(out.Servers, func(s machinesapi.RotationServer) bool { return !s.OK }) {
			t.Errorf("step %d: %+v, %v", i, out, err)
		}
	}
	c.checkReplaced(old)
}

// TestRotationUnderFaults interrupts rotations at any point: servers are down or cannot write, replies are lost,
// messages arrive late, and the broker restarts. All servers must be able to decrypt each other's messages at any time,
// and the rotation must end once the faults end.
func TestRotationUnderFaults(t *testing.T) {
	dirs := 0
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dirs++
		dir := filepath.Join(base, fmt.Sprint(dirs))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := newKeyCluster(t, dir, rapid.IntRange(1, 4).Draw(t, "servers"))
		old := c.servers[0].live.Get()[0]
		good := c.send
		var late []func()
		faulty := func(to *keyServer, text []byte) (enroll.KeyReply, error) {
			defer c.checkDecryption()
			switch rapid.SampledFrom([]string{"ok", "ok", "lost", "no reply", "late", "twice"}).Draw(t, "fault") {
			case "lost":
				return enroll.KeyReply{}, errors.New("lost")
			case "no reply":
				_, _ = good(to, text)
				return enroll.KeyReply{}, errors.New("no reply")
			case "late":
				late = append(late, func() { _, _ = good(to, text) })
				return enroll.KeyReply{}, errors.New("late")
			case "twice":
				_, _ = good(to, text)
			}
			return good(to, text)
		}
		r := c.rotation()
		sending := make(chan struct{}, 1) // rapid's draws must not happen concurrently
		c.send = func(to *keyServer, text []byte) (enroll.KeyReply, error) {
			sending <- struct{}{}
			defer func() { <-sending }()
			return faulty(to, text)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"step", "step", "start", "restart", "late"}).Draw(t, "event") {
			case "step":
				_, _ = r.Step(t.Context(), machinesapi.Rotate{}) // the step may fail
			case "start":
				_, _ = r.Step(t.Context(), machinesapi.Rotate{Start: true})
			case "restart":
				c.servers[0] = openKeyServer(t, c.servers[0].file.Path, c.servers[0].Member)
				r = c.rotation()
			case "late":
				if n := len(late); n > 0 {
					late[n-1]()
					late = late[:n-1]
				}
			}
			c.checkDecryption()
		}
		for _, deliver := range late {
			deliver()
		}
		c.checkDecryption()
		c.send = good
		c.finish(r, false)
		c.checkDecryption()
		c.finish(r, true)
		c.finish(r, true) // a late message may have left a key that no server needs
		c.checkReplaced(old)
	})
}

func TestRotationWaitsForServers(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 3)
	old := c.servers[0].live.Get()[0]
	r := c.rotation()
	c.down["s2"] = true
	out, err := r.Step(t.Context(), machinesapi.Rotate{Start: true})
	if err != nil || out.Step != machinesapi.RotationCheck || out.Servers[2].OK || !strings.Contains(out.Servers[2].Error, "down") || len(c.servers[0].live.Get()) != 1 {
		t.Fatalf("start while a server is down: %+v, %v, %d keys; want no new key", out, err, len(c.servers[0].live.Get()))
	}
	delete(c.down, "s2")
	if out, err = r.Step(t.Context(), machinesapi.Rotate{Start: true}); err != nil || !out.Started {
		t.Fatalf("first step: %+v, %v", out, err)
	}
	c.down["s1"] = true
	for range 2 {
		if out, err = r.Step(t.Context(), machinesapi.Rotate{Start: true}); err != nil || out.Started || out.Step != machinesapi.RotationUse || out.Servers[1].OK {
			t.Fatalf("step while s1 is down: %+v, %v", out, err)
		}
	}
	if n := len(c.servers[0].live.Get()); n != 2 {
		t.Errorf("the broker has %d keys while a server still encrypts with the old one, want 2", n)
	}
	delete(c.down, "s1")
	c.finish(r, true)
	c.checkReplaced(old)
}

// TestRotationWhileTheOldKeyIsNeeded has data that only the old key decrypts, first on the broker that rotates the key,
// then on another one. A broker with such data must keep the old key.
func TestRotationWhileTheOldKeyIsNeeded(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 3)
	old := c.servers[0].live.Get()[0]
	needed := map[*keyServer]bool{c.servers[0]: true, c.servers[2]: true}
	for _, s := range c.servers {
		s.file.CheckOldKey = func() error {
			if needed[s] {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "data of %s", s.ID)
			}
			return nil
		}
	}
	r := c.rotation()
	for i := range 4 {
		out, err := r.Step(t.Context(), machinesapi.Rotate{Start: i == 0})
		if err != nil || i > 0 && (out.Step != machinesapi.RotationUse || out.Blocked != "data of s0" || out.Done) {
			t.Errorf("step %d: %+v, %v, want the rotation to be blocked", i, out, err)
		}
	}
	needed[c.servers[0]] = false
	for range 2 {
		if _, err := r.Step(t.Context(), machinesapi.Rotate{}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := r.Step(t.Context(), machinesapi.Rotate{}); err != nil || out.Done || out.Servers[2].OK || out.Servers[2].Error != "data of s2" {
		t.Errorf("step with data on s2: %+v, %v", out, err)
	}
	c.checkDecryption()
	if n := len(c.servers[2].live.Get()); n != 2 {
		t.Errorf("s2 has %d keys, want the old key to be retained", n)
	}
	needed[c.servers[2]] = false
	c.finish(r, false)
	c.checkReplaced(old)
}

func TestKeyFileRefuses(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 1)
	s := c.servers[0]
	key, err := os.ReadFile(s.file.Path)
	if err != nil {
		t.Fatal(err)
	}
	other := admission.NewGossipKey()
	for what, text := range map[string][]byte{
		"no key":               []byte("# none\n"),
		"half a key":           key[:9],
		"another key":          other,
		"an unknown first key": slices.Concat([]byte("# rotation step 1\n"), other, key),
		"two keys and no step": slices.Concat(key, other),
		"too many keys":        bytes.Repeat(key, 9),
	} {
		reply, err := s.file.Set(context.Background(), &enroll.KeyRequest{Text: text})
		now, _ := os.ReadFile(s.file.Path)
		if err == nil || !bytes.Equal(now, key) || len(s.live.Get()) != 1 {
			t.Errorf("%s: %v, %v, want an error and an unchanged file", what, reply, err)
		}
	}
	if err := os.Remove(s.file.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.file.Path, 0o700); err != nil { // it cannot be replaced by a file
		t.Fatal(err)
	}
	if _, err := s.file.Set(t.Context(), &enroll.KeyRequest{Text: slices.Concat([]byte("# rotation step 1\n"), key, other)}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("set when the file cannot be written: %v, want unavailable", err)
	}
	if n := len(s.live.Get()); n != 1 {
		t.Errorf("%d keys in use, want only the old one", n)
	}
}

func TestRotationRefusesFilesEditedByHand(t *testing.T) {
	c := newKeyCluster(t, t.TempDir(), 2)
	for _, s := range c.servers {
		two := slices.Concat(admission.NewGossipKey(), admission.NewGossipKey())
		if err := os.WriteFile(s.file.Path, two, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.rotation().Step(t.Context(), machinesapi.Rotate{Start: true}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "which one") {
		t.Errorf("file with two keys and no step: %+v, %v, want failed_precondition", out, err)
	}
	if err := os.Remove(c.servers[0].file.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := c.rotation().Step(t.Context(), machinesapi.Rotate{Start: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzKeyFile sends arbitrary text to a server. The server must always have a file that it can read, and keep the key
// that it uses to encrypt.
func FuzzKeyFile(f *testing.F) {
	key := admission.NewGossipKey()
	f.Add([]byte("# rotation step 1\n"), true, true)
	f.Add([]byte("# rotation step 99999999999999999999\n"), true, false)
	f.Add([]byte("# rotation step -1\n#\n\n"), false, true)
	f.Fuzz(func(t *testing.T, text []byte, own, other bool) {
		if own {
			text = slices.Concat(text, []byte("\n"), key)
		}
		if other {
			text = slices.Concat(text, []byte("\n"), admission.NewGossipKey())
		}
		s := newKeyServer(t, filepath.Join(t.TempDir(), "key"), bourse.Member{ID: "s"}, key)
		before := s.live.Get()[0]
		reply, err := s.file.Set(context.Background(), &enroll.KeyRequest{Text: text})
		if err == nil && (reply.Number < 0 || !slices.Equal(reply.Keys, s.file.InUse())) {
			t.Errorf("the server reported %+v, but uses %v", reply, s.file.InUse())
		}
		if keys := s.live.Get(); !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, before) }) {
			t.Error("the server lost its key")
		}
		openKeyServer(t, s.file.Path, s.Member)
	})
}
