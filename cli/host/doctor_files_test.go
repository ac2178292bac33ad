package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

const day = 24 * time.Hour

// newCA returns a CA of the given age.
func newCA(t *testing.T, age time.Duration) *admission.CA {
	t.Helper()
	ca, err := admission.NewCA("c1", time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// renewed returns a certificate and key of the worker h1, as if a broker had signed the certificate at that age.
func renewed(t *testing.T, ca *admission.CA, age time.Duration) []byte {
	t.Helper()
	key, private, err := admission.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := enroll.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Sign(request, admission.Identity{ID: "h1", Role: bourse.RoleWorker}, nil, time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	return append(cert, private...)
}

// issued returns a worker's certificate and key, as if an operator had created them at that age.
func issued(t *testing.T, ca *admission.CA, id bourse.WorkerID, age time.Duration) admission.Pair {
	t.Helper()
	pair, err := ca.Issue(admission.Identity{ID: id, Role: bourse.RoleWorker}, nil, time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// workerIn stores credentials of the worker h1 in a new directory.
func workerIn(t *testing.T, ca *admission.CA, pair []byte) (serve.Server, admission.Dir) {
	t.Helper()
	dir := admission.Dir(t.TempDir())
	if err := os.Chmod(string(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{dir.CA(): ca.Pair().Cert, dir.Server("h1"): pair} {
		if err := wholefile.Write(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return serve.Server{
		Role: bourse.RoleWorker, Name: "h1", Host: &serve.HostConfig{},
		ServerConfig: &serve.ServerConfig{Cluster: "c1", Credentials: serve.Credentials{Dir: string(dir), Files: admission.Files{CA: dir.CA(), Pair: dir.Server("h1")}}},
	}, dir
}

func TestCheckCertificate(t *testing.T) {
	ca := newCA(t, 2*365*day)
	good := issued(t, ca, "h1", day)
	for name, c := range map[string]struct {
		pair []byte
		want status
	}{
		"renewed today":               {renewed(t, ca, time.Hour), statusOK},
		"renewal is due":              {renewed(t, ca, 4*day), statusOK},
		"was not renewed":             {renewed(t, ca, 6*day), statusWarning},
		"expired last week":           {renewed(t, ca, 14*day), statusProblem},
		"not valid yet":               {renewed(t, ca, -2*day), statusProblem},
		"valid for a year":            {good.PEM(), statusOK},
		"valid for two months":        {issued(t, ca, "h1", 305*day).PEM(), statusWarning},
		"expired after a year":        {issued(t, ca, "h1", 400*day).PEM(), statusProblem},
		"wrong key":                   {admission.Pair{Cert: good.Cert, Key: issued(t, ca, "h1", day).Key}.PEM(), statusProblem},
		"half a file":                 {good.PEM()[:len(good.Cert)+40], statusProblem},
		"empty":                       {nil, statusProblem},
		"from another cluster":        {issued(t, newCA(t, day), "h1", 0).PEM(), statusProblem},
		"belongs to another server":   {issued(t, ca, "h2", day).PEM(), statusProblem},
		"key of another algorithm":    {append(slices.Clone(good.Cert), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"...), statusProblem},
		"text instead of certificate": {[]byte("hello\n"), statusProblem},
	} {
		s, _ := workerIn(t, ca, c.pair)
		got := checkCertificate(&s, time.Now())
		if got.Status != c.want || (got.Try == "") != (c.want == statusOK) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestCheckAuthorities(t *testing.T) {
	ca := newCA(t, 0)
	issuer, err := ca.NewIssuer(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, dir := workerIn(t, ca, nil)
	if got := checkIssuer(dir, time.Now()); got != nil {
		t.Errorf("no issuer: %+v", got)
	}
	if err := wholefile.Write(dir.Issuer(), issuer.Pair().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		check func(admission.Dir, time.Time) []finding
		after time.Duration
		want  status
	}{
		"CA, new":             {checkCA, 0, statusOK},
		"CA, last weeks":      {checkCA, 10*365*day - 20*day, statusWarning},
		"CA, expired":         {checkCA, 11 * 365 * day, statusProblem},
		"issuer, new":         {checkIssuer, 0, statusOK},
		"issuer, last weeks":  {checkIssuer, 365*day - 20*day, statusWarning},
		"issuer, last second": {checkIssuer, 366 * day, statusProblem},
	} {
		if got := c.check(dir, time.Now().Add(c.after)); len(got) != 1 || got[0].Status != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	for _, bad := range []string{"", "text", string(ca.Pair().Cert[:100])} {
		for _, path := range []string{dir.CA(), dir.Issuer()} {
			if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := slices.Concat(checkCA(dir, time.Now()), checkIssuer(dir, time.Now())); len(got) != 2 || got[0].Status != statusProblem || got[1].Status != statusProblem {
			t.Errorf("%q: %+v, want problems", bad, got)
		}
	}
}

// Other users must not be able to read keys. A readable key is allowed if other users cannot enter its directory.
func TestCheckPrivate(t *testing.T) {
	s, dir := workerIn(t, newCA(t, 0), nil)
	config := filepath.Join(string(dir), "bourse.toml")
	for _, path := range []string{config, dir.GossipKey()} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		dir, config, key os.FileMode
		want             []string
	}{
		"private":             {0o755, 0o600, 0o600, nil},
		"group":               {0o755, 0o640, 0o640, nil},
		"readable key":        {0o755, 0o600, 0o644, []string{"credentials problem"}},
		"readable settings":   {0o755, 0o644, 0o600, []string{"configuration warning"}},
		"in a directory 0700": {0o700, 0o644, 0o644, nil},
	} {
		for path, mode := range map[string]os.FileMode{config: c.config, dir.GossipKey(): c.key, string(dir): c.dir} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, f := range checkCredentials(config, []serve.Server{s}, time.Now()) {
			if f.Status != statusOK && strings.Contains(f.Finding, "can be read") {
				got = append(got, f.Check+" "+string(f.Status))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestReadConfig(t *testing.T) {
	const common = "name = 'h1'\nregion = 'gru'\ndata = '/var/lib/bourse'\ninsecure = true\n"
	for name, c := range map[string]struct {
		text    string
		servers int
		want    []status
	}{
		"two servers":        {common + "[worker]\n[broker]\n", 2, []status{statusOK}},
		"no TOML":            {"[worker", 0, []status{statusProblem}},
		"unknown setting":    {common + "memry = 1\n[worker]\n[broker]\n", 2, []status{statusProblem}},
		"two wrong settings": {common + "[worker]\nidle-after = '1ns'\nstandby-after = '1ns'\n", 1, []status{statusProblem, statusProblem}},
		"no certificate":     {common + "credentials = '" + t.TempDir() + "/none'\n[worker]\n", 1, []status{statusProblem}},
		"no servers":         {common, 0, []status{statusProblem}},
	} {
		path := filepath.Join(t.TempDir(), "bourse.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, servers := readConfig(path)
		if !slices.Equal(statuses(found), c.want) || len(servers) != c.servers || servers == nil {
			t.Errorf("%s: %+v with %d servers, want %v with %d", name, found, len(servers), c.want, c.servers)
		}
	}
	if found, servers := readConfig(filepath.Join(t.TempDir(), "none")); servers != nil || len(found) != 1 || found[0].Status != statusOK {
		t.Errorf("missing configuration: %+v, %v", found, servers)
	}
}

func TestCheckDisks(t *testing.T) {
	data := t.TempDir()
	of := func(dir string) serve.Server { return serve.Server{Role: bourse.RoleProxy, Data: dir} }
	found := checkDisks([]serve.Server{of(data), of(filepath.Join(data, "none")), of(data)})
	missing := slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return !strings.Contains(f.Finding, "does not exist") })
	if len(missing) != 1 || missing[0].Status != statusProblem {
		t.Errorf("got %+v, want one problem about a missing directory", found)
	}
	if space := slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return !strings.Contains(f.Finding, "free") }); len(space) != 1 {
		t.Errorf("got %+v, want one finding about the file system's space", found)
	}
}

func TestCheckSpace(t *testing.T) {
	for name, c := range map[string]struct {
		space
		want status
	}{
		"half free":         {space{bytes: 100, freeBytes: 50, inodes: 100, freeInodes: 50}, statusOK},
		"no fixed inodes":   {space{bytes: 100, freeBytes: 50}, statusOK},
		"little space":      {space{bytes: 100, freeBytes: 9, inodes: 100, freeInodes: 50}, statusWarning},
		"almost full":       {space{bytes: 100, freeBytes: 1, inodes: 100, freeInodes: 50}, statusProblem},
		"few inodes":        {space{bytes: 100, freeBytes: 50, inodes: 100, freeInodes: 9}, statusWarning},
		"no inodes":         {space{bytes: 100, freeBytes: 50, inodes: 100}, statusProblem},
		"both, space worse": {space{bytes: 100, freeBytes: 1, inodes: 100, freeInodes: 9}, statusProblem},
		"pseudo":            {space{}, statusProblem},
	} {
		if got := checkSpace("/d", &c.space); got.Status != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}
