package test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// factory is a host behind a firewall. It can open connections, but does not accept any
// from outside.
type factory struct {
	*enclave
	outside string // address of this namespace, which the factory can reach
}

// newFactory creates a factory that is connected to this namespace by a separate network.
func newFactory(t *testing.T) *factory {
	t.Helper()
	f := &factory{enclave: newEnclave(t, unix.CLONE_NEWNET)}
	// The name and the subnet depend on this process's id, because another run of the tests
	// may have a factory, too.
	block := os.Getpid() % (1 << 14)
	name, subnet := fmt.Sprintf("bf%d", os.Getpid()), fmt.Sprintf("10.79.%d.", block>>6)
	inside := subnet + strconv.Itoa(block&63<<2+2)
	f.outside = subnet + strconv.Itoa(block&63<<2+1)
	thread := 0
	if err := f.do(func() error { thread = unix.Gettid(); return nil }); err != nil {
		t.Fatal(err)
	}
	// This end of the veth pair disappears with the factory's namespace.
	command(t, "ip", "link", "add", name, "type", "veth", "peer", "name", "out0", "netns", fmt.Sprint(thread))
	command(t, "ip", "addr", "add", f.outside+"/30", "dev", name)
	command(t, "ip", "link", "set", name, "up")
	err := f.do(func() error {
		var all error
		for _, words := range []string{"link set lo up", "addr add " + inside + "/30 dev out0", "link set out0 up", "route add default via " + f.outside} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				all = errors.Join(all, fmt.Errorf("ip %s: %w: %s", words, err, out))
			}
		}
		return errors.Join(all, wallUp("out0"))
	})
	if err != nil {
		t.Fatal(err)
	}
	f.unreachable(t, inside)
	return f
}

func command(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
}

// wallUp makes the current network namespace drop new incoming connections on a device.
func wallUp(card string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "wall"})
	chain := c.AddChain(&nftables.Chain{
		Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, card)
	fresh := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: fresh, Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0, 0, 0}},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return c.Flush()
}

// unreachable checks that a listener in the factory cannot be reached from outside.
func (f *factory) unreachable(t *testing.T, inside string) {
	t.Helper()
	var ln net.Listener
	if err := f.do(func() (err error) { ln, err = net.Listen("tcp", inside+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	if c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String()); err == nil {
		c.Close()
		t.Fatal("the factory accepted a connection from outside")
	}
}
