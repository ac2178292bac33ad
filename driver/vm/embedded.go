package vm

import "runtime"

// embedded returns the agent in this program, or nil if there is none.
func embedded() []byte {
	data, err := guest.ReadFile("guest/" + runtime.GOARCH + "/agent")
	if err != nil {
		return nil
	}
	return data
}
