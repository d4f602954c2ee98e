package dwarf

// Tags that are looked at (DWARF 5, section 7.5.3).
const (
	tagArrayType         = 0x01
	tagClassType         = 0x02
	tagEnumerationType   = 0x04
	tagCompileUnit       = 0x11
	tagStructureType     = 0x13
	tagSubroutineType    = 0x15
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagSubprogram        = 0x2e
	tagPartialUnit       = 0x3c
	tagSkeletonUnit      = 0x4a
)

// Attributes that are looked at (DWARF 5, section 7.5.4), and the GNU ones that
// came before some of them.
const (
	atSibling         = 0x01
	atName            = 0x03
	atStmtList        = 0x10
	atLowPC           = 0x11
	atHighPC          = 0x12
	atLanguage        = 0x13
	atCompDir         = 0x1b
	atAbstractOrigin  = 0x31
	atDeclLine        = 0x3b
	atSpecification   = 0x47
	atRanges          = 0x55
	atCallColumn      = 0x57
	atCallFile        = 0x58
	atCallLine        = 0x59
	atLinkageName     = 0x6e
	atStrOffsetsBase  = 0x72
	atAddrBase        = 0x73
	atRnglistsBase    = 0x74
	atDwoName         = 0x76
	atMIPSLinkageName = 0x2007
	atGNUDwoName      = 0x2130
	atGNUDwoID        = 0x2131
	atGNURangesBase   = 0x2132
	atGNUAddrBase     = 0x2133
)

// Languages in which a type cannot hold functions (DWARF 5, section 7.12).
const (
	languageC89 = 0x01
	languageC   = 0x02
	languageC99 = 0x0c
	languageC11 = 0x1d
	languageC17 = 0x2c
)

// Forms (DWARF 5, section 7.5.6), and those of GNU and of dwz.
const (
	FormAddr          = 0x01
	FormBlock2        = 0x03
	FormBlock4        = 0x04
	FormData2         = 0x05
	FormData4         = 0x06
	FormData8         = 0x07
	FormString        = 0x08
	FormBlock         = 0x09
	FormBlock1        = 0x0a
	FormData1         = 0x0b
	FormFlag          = 0x0c
	FormSdata         = 0x0d
	FormStrp          = 0x0e
	FormUdata         = 0x0f
	FormRefAddr       = 0x10
	FormRef1          = 0x11
	FormRef2          = 0x12
	FormRef4          = 0x13
	FormRef8          = 0x14
	FormRefUdata      = 0x15
	FormIndirect      = 0x16
	FormSecOffset     = 0x17
	FormExprloc       = 0x18
	FormFlagPresent   = 0x19
	FormStrx          = 0x1a
	FormAddrx         = 0x1b
	FormRefSup4       = 0x1c
	FormStrpSup       = 0x1d
	FormData16        = 0x1e
	FormLineStrp      = 0x1f
	FormRefSig8       = 0x20
	FormImplicitConst = 0x21
	FormLoclistx      = 0x22
	FormRnglistx      = 0x23
	FormRefSup8       = 0x24
	FormStrx1         = 0x25
	FormStrx2         = 0x26
	FormStrx3         = 0x27
	FormStrx4         = 0x28
	FormAddrx1        = 0x29
	FormAddrx2        = 0x2a
	FormAddrx3        = 0x2b
	FormAddrx4        = 0x2c
	FormGNUAddrIndex  = 0x1f01
	FormGNUStrIndex   = 0x1f02
	FormGNURefAlt     = 0x1f20
	FormGNUStrpAlt    = 0x1f21
)

// Kinds of units (DWARF 5, section 7.5.1).
const (
	UnitCompile      = 1
	UnitType         = 2
	UnitPartial      = 3
	UnitSkeleton     = 4
	UnitSplitCompile = 5
	UnitSplitType    = 6
)

// Entries of range lists (DWARF 5, section 7.25).
const (
	rleEndOfList    = 0
	rleBaseAddressx = 1
	rleStartxEndx   = 2
	rleStartxLength = 3
	rleOffsetPair   = 4
	rleBaseAddress  = 5
	rleStartEnd     = 6
	rleStartLength  = 7
)

// Opcodes of line programs (DWARF 5, section 7.22).
const (
	lnsExtended       = 0
	lnsCopy           = 1
	lnsAdvancePC      = 2
	lnsAdvanceLine    = 3
	lnsSetFile        = 4
	lnsSetColumn      = 5
	lnsNegateStmt     = 6
	lnsSetBasicBlock  = 7
	lnsConstAddPC     = 8
	lnsFixedAdvancePC = 9
	lnsPrologueEnd    = 10
	lnsEpilogueBegin  = 11
	lnsSetISA         = 12

	lneEndSequence = 1
	lneSetAddress  = 2
	lneDefineFile  = 3

	lnctPath           = 1
	lnctDirectoryIndex = 2
)
