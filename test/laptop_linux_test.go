package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// command runs a bourse command on a host and returns its output.
func (h *host) command(api string, words ...string) (string, error) {
	var out, said bytes.Buffer
	c := exec.Command(servertest.Program, append([]string{"--api", "http://" + api}, words...)...)
	c.Stdout, c.Stderr = &out, &said
	err := h.launch(c)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		err = fmt.Errorf("bourse %s: %w: %s", strings.Join(words, " "), err, said.String())
	}
	return out.String(), err
}

// wireGuardSettings parses a configuration in the format of wg-quick, in which each key occurs once.
func wireGuardSettings(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, " = "); ok && !strings.HasPrefix(line, "#") {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}

// connect does on a laptop what wg-quick does with a configuration, with wireguard-go in this process.
func (h *host) connect(t *testing.T, text string) {
	t.Helper()
	s := wireGuardSettings(text)
	key := func(name string) string {
		raw, err := base64.StdEncoding.DecodeString(s[name])
		if err != nil || len(raw) != 32 {
			t.Fatalf("%s in the configuration: %v, %d bytes; want a key of 32 bytes:\n%s", name, err, len(raw), text)
		}
		return hex.EncodeToString(raw)
	}
	config := fmt.Sprintf("private_key=%s\npublic_key=%s\nendpoint=%s\npersistent_keepalive_interval=%s\n", key("PrivateKey"), key("PublicKey"), s["Endpoint"], s["PersistentKeepalive"])
	words := []string{"ip addr add " + s["Address"] + " dev wg0 nodad", "ip link set wg0 up mtu " + s["MTU"]}
	for prefix := range strings.SplitSeq(s["AllowedIPs"], ", ") {
		config += "allowed_ip=" + prefix + "\n"
		words = append(words, "ip route add "+prefix+" dev wg0")
	}
	var card tun.Device
	err := h.do(func() (err error) {
		card, err = tun.CreateTUN("wg0", device.DefaultMTU)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(card, hostBind{conn.NewStdNetBind(), h}, device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	if err := errors.Join(dev.IpcSet(config), dev.Up()); err != nil {
		t.Fatal(err)
	}
	err = h.do(func() error {
		for _, line := range words {
			parts := strings.Fields(line)
			if out, err := exec.Command(parts[0], parts[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// hostBind opens wireguard-go's sockets in a host's network namespace. wireguard-go may close its sockets and open them
// again in another goroutine, because it may notice late that its link was down at first.
type hostBind struct {
	conn.Bind
	h *host
}

// Open implements conn.Bind.
func (b hostBind) Open(port uint16) (receive []conn.ReceiveFunc, actual uint16, err error) {
	err = b.h.do(func() (err error) {
		receive, actual, err = b.Bind.Open(port)
		return err
	})
	return receive, actual, err
}

// read connects from a host to an address and returns what it receives.
func (h *host) read(address string) (string, error) {
	var text []byte
	err := h.do(func() error {
		c, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		text, err = io.ReadAll(c)
		return err
	})
	return string(text), err
}

// lookUp resolves a name with the name server of a configuration.
func (h *host) lookUp(text, name string) ([]string, error) {
	server, _, _ := strings.Cut(wireGuardSettings(text)["DNS"], ",")
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (c net.Conn, err error) {
		err = h.do(func() (err error) {
			c, err = net.Dial("udp", net.JoinHostPort(server, "53"))
			return err
		})
		return c, err
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return r.LookupHost(ctx, name)
}
