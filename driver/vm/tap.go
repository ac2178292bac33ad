package vm

import "github.com/bourse-dev/bourse/driver/vm/session"

// tapName is the name of qemu's network device in the machine's namespace, which also contains
// eth0.
const tapName = "tap0"

// device contains the settings for the guest's network interface. They are copied from eth0 in the
// machine's namespace.
type device struct {
	mac       string
	mtu       int
	addresses []string
	gateways  []session.Gateway
}
