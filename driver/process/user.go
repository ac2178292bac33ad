package process

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// identityOf looks up the user and group in a string of the form "user[:group]". It returns nil if the
// daemon's own user must be used, and CodeInvalid if the user does not exist or the daemon cannot switch
// to it.
func identityOf(name string) (*identity, error) {
	if name == "" {
		return nil, nil
	}
	userName, groupName, hasGroup := strings.Cut(name, ":")
	id := &identity{Name: name}
	u, err := findUser(userName)
	if err != nil {
		return nil, err
	}
	id.UID, id.GID = u.uid, u.gid
	if hasGroup {
		if id.GID, err = findGroup(groupName); err != nil {
			return nil, err
		}
	} else {
		id.Groups = u.groups
	}
	if os.Geteuid() != 0 {
		if int(id.UID) != os.Geteuid() || (hasGroup && int(id.GID) != os.Getegid()) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "user %s: only a worker that runs as root can run a machine as another user", bourse.Quoted(name))
		}
		return nil, nil
	}
	return id, nil
}

type foundUser struct {
	uid, gid uint32
	groups   []uint32
}

// findUser looks up a user by name or number. A number is valid even if no such user exists.
func findUser(name string) (foundUser, error) {
	u, err := user.Lookup(name)
	if n, numErr := number(name); err != nil && numErr == nil {
		if u, err = user.LookupId(name); err != nil {
			return foundUser{uid: n, gid: n}, nil //nolint:nilerr // a number need not be in the host's user table
		}
	}
	if err != nil {
		if _, ok := errors.AsType[user.UnknownUserError](err); ok {
			return foundUser{}, bourse.Errorf(bourse.CodeInvalid, "user %s does not exist", bourse.Quoted(name))
		}
		return foundUser{}, bourse.Errorf(bourse.CodeInvalid, "user %s: %w", bourse.Quoted(name), err)
	}
	uid, uidErr := number(u.Uid)
	gid, gidErr := number(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return foundUser{}, bourse.Errorf(bourse.CodeInvalid, "user %s: %w", bourse.Quoted(name), err)
	}
	found := foundUser{uid: uid, gid: gid}
	groups, _ := u.GroupIds() // if this fails, the user still has its own group
	for _, g := range groups {
		if n, err := number(g); err == nil {
			found.groups = append(found.groups, n)
		}
	}
	return found, nil
}

func findGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err == nil {
		return number(g.Gid)
	}
	if n, numErr := number(name); numErr == nil {
		return n, nil
	}
	return 0, bourse.Errorf(bourse.CodeInvalid, "group %s does not exist", bourse.Quoted(name))
}

// number parses a user or group number. The highest 32-bit number is invalid, because it means "unchanged"
// to the kernel.
func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == 1<<32-1 {
		err = strconv.ErrRange
	}
	return uint32(n), err
}
