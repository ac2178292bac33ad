package direct_test

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
)

// TestServerProvesItself checks that a broker connects only to the intended worker, even if
// another server has its address.
func TestServerProvesItself(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	f := direct.New(credentials(t, ca, "broker-1", bourse.RoleBroker).Client)
	t.Cleanup(f.Close)
	tests := []struct {
		name   string
		server *tls.Config
	}{
		{"another worker", credentials(t, ca, "w2", bourse.RoleWorker).Server(bourse.RoleBroker)},
		{"a broker with that name", credentials(t, ca, "w1", bourse.RoleBroker).Server(bourse.RoleBroker)},
		{"a worker with that name in another cluster", credentials(t, other, "w1", bourse.RoleWorker).Public()},
		{"a server without TLS", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, _ := serve(t, refuse(t), tt.server)
			_, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{})
			if bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Errorf("got %v, want unavailable", err)
			}
		})
	}
}

func refuse(t *testing.T) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the server received %s", r.URL) })
}

// TestClientProvesItself checks that a worker accepts only brokers of its cluster.
func TestClientProvesItself(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	ln, _ := serve(t, refuse(t), credentials(t, ca, "w1", bourse.RoleWorker).Server(bourse.RoleBroker))
	nobody := credentials(t, ca, "broker-1", bourse.RoleBroker).Client()
	nobody.Certificates = nil
	stranger := credentials(t, other, "broker-1", bourse.RoleBroker).Client()
	stranger.RootCAs = nobody.RootCAs
	tests := []struct {
		name   string
		client direct.TLS
	}{
		{"no certificate", func() *tls.Config { return nobody }},
		{"another worker", credentials(t, ca, "w2", bourse.RoleWorker).Client},
		{"a broker of another cluster", func() *tls.Config { return stranger }},
		{"in the clear", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := direct.New(tt.client)
			t.Cleanup(f.Close)
			if _, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{}); err == nil {
				t.Error("got an answer, want none")
			}
		})
	}
}
