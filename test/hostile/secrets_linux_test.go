package hostile

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestContainerSecretsDoNotLeak gives a container its app's secrets, in its environment and as a file. They must also
// be available after its worker's daemon was killed, after a restart, and in an exec. No file of the cluster or of
// containerd may contain them. Once the cluster has ended, no process's memory may contain them either.
func TestContainerSecretsDoNotLeak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containers require root")
	}
	value, inFile := rand.Text(), rand.Text()
	digest := sha256.Sum256([]byte(value + inFile))
	want := hex.EncodeToString(digest[:])
	data, server, registry := t.TempDir(), containerdtest.New(t), registrytest.Start(t, registrytest.Options{})
	image := registry.Push(t, "sleeper:1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(t)}})
	nowhere := func() {
		t.Helper()
		for _, secret := range []string{value, inFile} {
			searchFor(t, data, secret)
			searchForSome(t, server.Dir, secret, 3)
		}
	}
	t.Run("running", func(t *testing.T) {
		d := servertest.StartDev(t, "--regions", "gru", "--workers", "1", "--data", data, "--containerd", server.Address)
		api := d.Client()
		if _, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "vault", Org: "personal"}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Secrets("vault").Change(t.Context(), map[string]*string{"PASSWORD": &value, "KEY": new(base64.StdEncoding.EncodeToString([]byte(inFile)))}); err != nil {
			t.Fatal(err)
		}
		made, err := api.Create(t.Context(), "vault", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: image.Name, Guest: &bourse.Guest{MemoryMB: 64}, Files: []bourse.File{{GuestPath: "/etc/vault/key", SecretName: "KEY"}},
			Init: bourse.Init{Exec: []string{"/bin/sleep", "600"}},
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		has := func() {
			t.Helper()
			var out machinesapi.ExecReply
			if !servertest.Within(servertest.Timeout, func() bool {
				out, err = api.Exec(t.Context(), "vault", made.Machine.ID, machinesapi.ExecMachine{
					Command: []string{"/bin/sh", "-c", `printf %s%s "$PASSWORD" "$(cat /etc/vault/key)" | sha256sum; tr '\0' '\n' < /proc/1/environ | grep -c ^PASSWORD=.`},
				})
				return err == nil && strings.HasPrefix(out.Stdout, want) && strings.HasSuffix(out.Stdout, "\n1\n")
			}) {
				t.Fatalf("a command printed %+v (%v), want the digest of the secrets, and a count of 1", out, err)
			}
		}
		has()
		nowhere()
		worker := d.Servers[1]
		if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.Restarted(t, worker.ID, worker.PID)
		has()
		if !servertest.Within(servertest.Timeout, func() bool {
			return api.Restart(t.Context(), "vault", made.Machine.ID, machinesapi.RestartMachine{ForceStop: true}, "") == nil
		}) {
			t.Fatal("the restart of the machine failed repeatedly")
		}
		has()
		nowhere()
	})
	nowhere()
	for _, dir := range []string{"/run/bourse", "/dev/shm/bourse"} {
		left, _ := os.ReadDir(dir) // may have been left by other tests
		for _, e := range left {
			searchForSome(t, dir+"/"+e.Name(), value, 0)
		}
	}
}
