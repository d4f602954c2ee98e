// Package imports has no code: its test keeps the direction of imports between
// the packages of this module.
package imports
