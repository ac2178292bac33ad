package registrytest_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse/image/registrytest"
)

// get requests a URL and returns the status and the body. It returns an error if the body is
// incomplete.
func get(t *testing.T, client *http.Client, url, user, password string) (int, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

func TestPushedImageIsServed(t *testing.T) {
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "team/web:v1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Random(1, 1000)}})
	status, body, err := get(t, http.DefaultClient, "http://"+r.Host+"/v2/team/web/manifests/v1", "", "")
	if status != http.StatusOK || err != nil || string(body) != string(p.Blobs[p.Manifest.Digest]) {
		t.Errorf("manifest: status %d, %q, %v", status, body, err)
	}
	layer := p.Layers[0]
	status, body, err = get(t, http.DefaultClient, "http://"+r.Host+"/v2/team/web/blobs/"+layer.Digest.String(), "", "")
	if status != http.StatusOK || err != nil || int64(len(body)) != layer.Size {
		t.Errorf("layer: status %d, %d bytes, %v, want %d bytes", status, len(body), err, layer.Size)
	}
	want := registrytest.Stats{Requests: 2, Manifests: 1, Blobs: 1, BlobBytes: layer.Size}
	if got := r.Stats(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestFaults(t *testing.T) {
	r := registrytest.Start(t, registrytest.Options{Dir: t.TempDir()})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Random(1, 1000)}})
	url := "http://" + r.Host + "/v2/web/blobs/" + p.Layers[0].Digest.String()
	for name, tc := range map[string]struct {
		fault  registrytest.Fault
		status int
		bytes  int
		broken bool
	}{
		"status":  {registrytest.Fault{Status: http.StatusBadGateway}, http.StatusBadGateway, 0, false},
		"body":    {registrytest.Fault{Body: []byte("lie")}, http.StatusOK, 3, false},
		"cut":     {registrytest.Fault{Cut: true, After: 100}, http.StatusOK, 100, true},
		"corrupt": {registrytest.Fault{Corrupt: true}, http.StatusOK, int(p.Layers[0].Size), false},
		"slow":    {registrytest.Fault{Rate: 1 << 20}, http.StatusOK, int(p.Layers[0].Size), false},
	} {
		r.Fault(func(*http.Request) registrytest.Fault { return tc.fault })
		status, body, err := get(t, http.DefaultClient, url, "", "")
		if status != tc.status || len(body) != tc.bytes || (err != nil) != tc.broken {
			t.Errorf("%s: status %d, %d bytes, %v, want %+v", name, status, len(body), err, tc)
		}
	}
	r.Stop()
	if _, _, err := get(t, http.DefaultClient, url, "", ""); err == nil {
		t.Error("a stopped registry answers")
	}
	r.Fault(nil)
	r.Restart(t)
	if status, _, err := get(t, http.DefaultClient, url, "", ""); status != http.StatusOK {
		t.Errorf("after a restart: %d, %v", status, err)
	}
}

func TestTLSAndCredentials(t *testing.T) {
	r := registrytest.Start(t, registrytest.Options{TLS: true, Username: "ann", Password: "secret"})
	r.Push(t, "web:v1", registrytest.Image{})
	pem, err := os.ReadFile(r.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	url := "https://" + r.Host + "/v2/web/manifests/v1"
	if status, _, err := get(t, client, url, "", ""); status != http.StatusUnauthorized {
		t.Errorf("without credentials: %d, %v", status, err)
	}
	if status, _, err := get(t, client, url, "ann", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d, %v", status, err)
	}
	if status, _, err := get(t, client, url, "ann", "secret"); status != http.StatusOK {
		t.Errorf("with credentials: %d, %v", status, err)
	}
}
