// Package imports has no code: its tests keep the direction of imports between
// the packages of this module, and the places that ARCHITECTURE.md names for changes.
package imports
