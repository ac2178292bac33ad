package network

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// generation returns the generation of the kernel's rules, a number that every process's nftables transactions
// increment.
func (f *firewall) generation() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: f.ns})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // ignore the error, because nothing was written
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, 4), // struct nfgenmsg
	})
	if err != nil {
		return 0, err
	}
	for _, m := range replies {
		if len(m.Data) < 4 {
			continue
		}
		attrs, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		attrs.ByteOrder = binary.BigEndian
		for attrs.Next() {
			if attrs.Type() == unix.NFTA_GEN_ID {
				return attrs.Uint32(), attrs.Err()
			}
		}
	}
	return 0, fmt.Errorf("the kernel did not return the generation of its rules")
}

// repair rebuilds the table if another program has changed it, and reports whether it did so. As long as no program
// changes any rules on the host, repair only queries the generation of the kernel's rules.
func (f *firewall) repair() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.built {
		return false, nil
	}
	now, err := f.generation()
	if err != nil || now == f.verified {
		return false, err
	}
	if !f.isIntact() {
		return true, f.rebuild()
	}
	f.verified = now
	return false, nil
}

// isIntact reports whether the kernel's table contains the expected numbers of rules and elements. Rules and elements
// that cannot be listed count as missing.
func (f *firewall) isIntact() bool {
	c, err := f.conn()
	if err != nil {
		return false
	}
	here := 0
	for _, m := range f.remotes {
		if m.here {
			here++
		}
	}
	for _, s := range f.layout.sets() {
		want := len(f.members)
		switch s {
		case f.layout.remotes, f.layout.foreign:
			want = len(f.remotes)
		case f.layout.laptops:
			want = here
		}
		if got, err := c.GetSetElements(s); err != nil || len(got) != want {
			return false
		}
	}
	for _, ch := range f.layout.chains {
		if got, err := c.GetRules(f.layout.table, ch.Chain); err != nil || len(got) != ch.rules {
			return false
		}
	}
	return true
}
