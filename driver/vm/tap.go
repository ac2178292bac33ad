package vm

import "github.com/bourse-dev/bourse/driver/vm/session"

// tapName is the name of the device next to eth0 that belongs to qemu.
const tapName = "tap0"

// device is the guest's network interface, which takes the place of the namespace's eth0.
type device struct {
	mac       string
	mtu       int
	addresses []string
	gateways  []session.Gateway
}
