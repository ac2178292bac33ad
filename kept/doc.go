// Package kept is what a config has that its fields do not type: the shapes that
// clients of the Machines API decode, since one value of a wrong type would make
// every client fail on the app's whole list, and what is said or refused of each
// member.
package kept
