package image

import "testing"

// TestRegistriesAreBounded connects to more registries than the maximum number of kept clients.
func TestRegistriesAreBounded(t *testing.T) {
	r := &registries{}
	for i := range 3 * maxRegistries {
		if _, err := r.host("", string(rune('a'+i%26))+string(rune('a'+i/26))+".test"); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.hosts) != maxRegistries {
		t.Errorf("%d registries are kept, want %d", len(r.hosts), maxRegistries)
	}
}

func TestSchemes(t *testing.T) {
	r := &registries{config: map[string]Registry{"plain.test": {PlainHTTP: true}, "127.0.0.1:2": {CA: "/dev/null"}}}
	for host, want := range map[string]string{"registry.test": "https", "plain.test": "http", "127.0.0.1:1": "http", "localhost": "http", "[::1]:5": "http"} {
		h, err := r.host("", host)
		if err != nil || h.Scheme != want {
			t.Errorf("%s is reached by %s, %v, want %s", host, h.Scheme, err, want)
		}
	}
	if _, err := r.host("", "127.0.0.1:2"); err == nil {
		t.Error("a CA file without a certificate is accepted")
	}
}
