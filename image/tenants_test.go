package image_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// loginFile writes credentials for a registry to a file in docker's format.
func loginFile(tb testing.TB, path, host, login string) string {
	tb.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(login))
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, auth), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// TestCredentialsOfAnOrganizationAreItsOwn checks that an image pulled with one organization's
// credentials is refused to another organization, by tag, by digest, and while the registry is
// unreachable. Public images are available to all.
func TestCredentialsOfAnOrganizationAreItsOwn(t *testing.T) {
	server := containerdtest.Start(t)
	private := registrytest.Start(t, registrytest.Options{Username: "ann", Password: "secret"})
	public := registrytest.Start(t, registrytest.Options{})
	p := private.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	q := public.Push(t, "base:v1", registrytest.Image{Layers: random(1000)})
	dir := t.TempDir()
	h := newHost(t, server)
	open := func() *image.Store {
		s := h.open(t, func(c *image.Config) {
			c.OrgConfigs = map[string]string{
				"acme":  loginFile(t, filepath.Join(dir, "acme.json"), private.Host, "ann:secret"),
				"wrong": loginFile(t, filepath.Join(dir, "wrong.json"), private.Host, "bob:guess"),
			}
			c.ResolveTimeout = waitLimit
		})
		run(t, s)
		return s
	}
	have := func(s *image.Store, org, name string) error {
		ref, err := s.Resolve(t.Context(), org, name)
		if err == nil {
			_, err = s.Pull(t.Context(), org, ref, nil)
		}
		return err
	}
	others := func(s *image.Store, when string, want bourse.Code) {
		t.Helper()
		for _, org := range []string{"rival", "wrong", ""} {
			for _, name := range []string{p.Name, p.Ref(), p.Name + "@" + p.Digest} {
				err := have(s, org, name)
				if bourse.CodeOf(err) != want || want == bourse.CodeNotFound && !strings.Contains(bourse.MessageOf(err), "no credentials") {
					t.Errorf("%s: organization %q has %s: %v, want %s with the reason", when, org, name, err, want)
				}
				if n, known := s.Missing(org, name); known {
					t.Errorf("%s: organization %q learns that %d bytes of %s are missing", when, org, n, name)
				}
			}
		}
	}
	s := open()
	others(s, "before", bourse.CodeNotFound)
	wantCode(t, have(s, "acme", p.Name), "")
	wantCode(t, have(s, "acme", p.Ref()), "")
	if n, known := s.Missing("acme", p.Name); n != 0 || !known {
		t.Errorf("acme learns that %d bytes of its image are missing, %t", n, known)
	}
	others(s, "while the image is present", bourse.CodeNotFound)
	for _, org := range []string{"acme", "rival", "wrong", ""} {
		wantCode(t, have(s, org, q.Name), "")
	}
	private.Stop()
	others(s, "while the registry is unreachable", bourse.CodeUnavailable)
	wantCode(t, have(s, "acme", p.Name), "")
	wantCode(t, have(s, "acme", p.Ref()), "")
}

// TestARestartForgetsNoOrganization checks that a restarted daemon, without its registry, offers an image only to
// the organization whose access to it was confirmed.
func TestARestartForgetsNoOrganization(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{Username: "ann", Password: "secret"})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	orgs := map[string]string{"acme": loginFile(t, filepath.Join(t.TempDir(), "acme.json"), r.Host, "ann:secret")}
	edit := func(c *image.Config) { c.OrgConfigs, c.Recheck = orgs, time.Nanosecond }
	s := h.open(t, edit)
	ref, err := s.Resolve(t.Context(), "acme", p.Name)
	wantCode(t, err, "")
	_, err = s.Pull(t.Context(), "acme", ref, nil)
	wantCode(t, err, "")
	r.Stop()
	again := h.open(t, edit)
	_, err = again.Resolve(t.Context(), "acme", p.Ref())
	wantCode(t, err, "")
	_, err = again.Resolve(t.Context(), "rival", p.Ref())
	wantCode(t, err, bourse.CodeUnavailable)
}

// TestCredentialsOfAnOrganizationAreReadAgain checks that an organization's changed or removed credentials no longer
// give access once an answer is older than Config.Recheck, and that new credentials give access immediately.
func TestCredentialsOfAnOrganizationAreReadAgain(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{Username: "ann", Password: "secret"})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	file := loginFile(t, filepath.Join(t.TempDir(), "acme.json"), "elsewhere.example", "ann:secret")
	s := h.open(t, func(c *image.Config) {
		c.OrgConfigs, c.Recheck = map[string]string{"acme": file}, time.Nanosecond
	})
	for i, tc := range []struct {
		host, login string
		want        bourse.Code
	}{
		{"elsewhere.example", "ann:secret", bourse.CodeNotFound},
		{r.Host, "ann:secret", ""},
		{r.Host, "ann:guess", bourse.CodeNotFound},
		{r.Host, "ann:secret", ""},
		{"elsewhere.example", "ann:secret", bourse.CodeNotFound},
	} {
		loginFile(t, file, tc.host, tc.login)
		for _, name := range []string{p.Name, p.Ref()} {
			ref, err := s.Resolve(t.Context(), "acme", name)
			if err == nil {
				_, err = s.Pull(t.Context(), "acme", ref, nil)
			}
			if bourse.CodeOf(err) != tc.want {
				t.Errorf("%d: %s for %s, with %s for %s: %v, want %q", i, name, "acme", tc.login, tc.host, err, tc.want)
			}
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Resolve(t.Context(), "acme", r.Name("other:v1"))
	wantCode(t, err, bourse.CodeUnavailable)
}

// TestDigestAloneIsNoProof checks that a tenant does not get another tenant's image just because its own registry
// claims to have an image with the same digest.
func TestDigestAloneIsNoProof(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	private := registrytest.Start(t, registrytest.Options{Username: "ann", Password: "secret"})
	p := private.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	liar := claimsAll(t, p.Digest)
	s := h.open(t, func(c *image.Config) {
		c.OrgConfigs = map[string]string{"acme": loginFile(t, filepath.Join(t.TempDir(), "acme.json"), private.Host, "ann:secret")}
	})
	ref, err := s.Resolve(t.Context(), "acme", p.Name)
	wantCode(t, err, "")
	_, err = s.Pull(t.Context(), "acme", ref, nil)
	wantCode(t, err, "")
	for _, name := range []string{liar + "/web@" + p.Digest, liar + "/web:v1"} {
		ref, err = s.Resolve(t.Context(), "rival", name)
		if err == nil {
			_, err = s.Pull(t.Context(), "rival", ref, nil)
		}
		if err == nil || s.Has(ref) {
			t.Errorf("%s was pulled from a registry that does not have it", name)
		}
		if n, known := s.Missing("rival", name); known {
			t.Errorf("the rival learns that %d bytes of %s are missing", n, name)
		}
	}
}

// claimsAll starts a registry that claims to have every manifest, with the same digest, but sends none of them.
func claimsAll(tb testing.TB, digest string) (host string) {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Docker-Content-Digest", digest)
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "500")
			return
		}
		_, _ = w.Write([]byte("{}")) // the client may have disconnected
	}))
	tb.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
