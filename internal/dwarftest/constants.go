package dwarftest

// The numbers are written down here apart from those of the readers, in internal/dwarf, so that a
// wrong number there is found: these lines are there twice on purpose.

// Tags (DWARF 5, section 7.5.3).
const (
	tagArrayType         = 0x01
	tagClassType         = 0x02
	tagEnumerationType   = 0x04
	tagFormalParameter   = 0x05
	tagLexicalBlock      = 0x0b
	tagMember            = 0x0d
	tagCompileUnit       = 0x11
	tagStructureType     = 0x13
	tagSubroutineType    = 0x15
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagModule            = 0x1e
	tagSubrangeType      = 0x21
	tagBaseType          = 0x24
	tagEnumerator        = 0x28
	tagSubprogram        = 0x2e
	tagVariable          = 0x34
	tagNamespace         = 0x39
	tagPartialUnit       = 0x3c
	tagImportedUnit      = 0x3d
	tagTypeUnit          = 0x41
	tagCallSite          = 0x48
	tagSkeletonUnit      = 0x4a
	tagVendor            = 0x4109
)

// Attributes (DWARF 5, section 7.5.4), and GNU's.
const (
	atSibling         = 0x01
	atLocation        = 0x02
	atName            = 0x03
	atByteSize        = 0x0b
	atStmtList        = 0x10
	atLowPC           = 0x11
	atHighPC          = 0x12
	atLanguage        = 0x13
	atImport          = 0x18
	atCompDir         = 0x1b
	atConstValue      = 0x1c
	atInline          = 0x20
	atProducer        = 0x25
	atAbstractOrigin  = 0x31
	atDeclColumn      = 0x39
	atDeclFile        = 0x3a
	atDeclLine        = 0x3b
	atDeclaration     = 0x3c
	atExternal        = 0x3f
	atFrameBase       = 0x40
	atSpecification   = 0x47
	atType            = 0x49
	atEntryPC         = 0x52
	atRanges          = 0x55
	atCallColumn      = 0x57
	atCallFile        = 0x58
	atCallLine        = 0x59
	atSignature       = 0x69
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
	atVendor          = 0x3a00 // and some after it: nobody's
)

// Forms (DWARF 5, section 7.5.6), and those of GNU and of dwz.
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// Kinds of units (DWARF 5, section 7.5.1).
const (
	unitCompile      = 1
	unitType         = 2
	unitPartial      = 3
	unitSkeleton     = 4
	unitSplitCompile = 5
	unitSplitType    = 6
)

// Languages (DWARF 5, section 7.12).
const (
	langC89 = 0x01
	langC99 = 0x0c
	langCxx = 0x04
	langC11 = 0x1d
	langRus = 0x1c
	langC14 = 0x21
)

// Opcodes of line programs and the parts of entries of their tables (DWARF 5, section
// 7.22).
const (
	lnsCopy = iota + 1
	lnsAdvancePC
	lnsAdvanceLine
	lnsSetFile
	lnsSetColumn
	lnsNegateStmt
	lnsSetBasicBlock
	lnsConstAddPC
	lnsFixedAdvancePC
	lnsPrologueEnd
	lnsEpilogueBegin
	lnsSetISA
)

const (
	lneEndSequence = iota + 1
	lneSetAddress
	lneDefineFile
	lneSetDiscriminator
	lneVendor = 0x85
)

const (
	lnctPath = iota + 1
	lnctDirectory
	lnctTime
	lnctSize
	lnctMD5
	lnctVendor = 0x2001
)
